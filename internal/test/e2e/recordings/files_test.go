package recordings

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/openai"
)

// recordedFile is how a recorded conversation with a file is held.
type recordedFile struct {
	// prompt are the parts of the prompt, output and result what the tool returns.
	prompt []client.Part
	output any
	result []client.Part
	// left are the texts of the recorded requests that say only where the file is.
	left []string
	// sends is what the last request has to hold, without white space.
	sends string
	// host is the server's, for one that agentd knows by it.
	host string
}

// recordedFiles are the recordings that TestRecordings cannot hold, since there is
// more in them than texts.
var recordedFiles = map[string]recordedFile{
	"test_openrouter__test_openrouter_video_url_public_api": {
		prompt: []client.Part{client.FileURI("video/webm", "https://upload.wikimedia.org/wikipedia/commons/8/8f/Panda_at_Smithsonian_zoo.webm")},
		sends:  `{"type":"video_url","video_url":{"url":"https://upload.wikimedia.org/wikipedia/commons/8/8f/Panda_at_Smithsonian_zoo.webm"}}`,
	},
	"test_multimodal_tool_returns__test_multimodal_tool_return_matrix_direct-uploaded_file-video-google_2_5": {
		output: []any{map[string]any{}, "See file 468a13."},
		result: []client.Part{client.FileURI("video/mp4", "https://generativelanguage.googleapis.com/v1beta/files/nvp2l539zsmd")},
		left:   []string{"This is file 468a13:"},
		sends:  `{"fileData":{"fileUri":"https://generativelanguage.googleapis.com/v1beta/files/nvp2l539zsmd","mimeType":"video/mp4"}}`,
	},
	"test_multimodal_tool_returns__test_multimodal_tool_return_matrix_direct-url-document-mistral": {
		output: "See file 99631f.",
		result: []client.Part{client.FileURI("application/pdf", "https://pdfobject.com/pdf/sample.pdf")},
		left:   []string{"This is file 99631f:"},
		sends:  `{"type":"document_url","document_url":"https://pdfobject.com/pdf/sample.pdf"}`,
		host:   "https://api.mistral.ai/v1",
	},
	"test_multimodal_tool_returns__test_text_plain_document_anthropic": {
		result: []client.Part{client.Inline("text/plain", []byte("Dummy TXT file\n"))},
		sends:  `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"Dummy TXT file\n"}}`,
	},
}

// elsewhere sends requests to a server, whatever host they are for.
type elsewhere struct{ to *url.URL }

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = e.to.Scheme, e.to.Host, e.to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// TestRecordedFiles holds the recorded conversations with files, with the real
// client and the real daemon: the last request says what the recorded one says, and
// has the file where its provider took it.
func TestRecordedFiles(t *testing.T) {
	for _, rec := range providertest.All(t) {
		how, ok := recordedFiles[rec.Name]
		if !ok {
			continue
		}
		t.Run(rec.Name, func(t *testing.T) {
			conv, err := providertest.Expect(rec)
			if err != nil {
				t.Fatal(err)
			}
			calls := rec.Calls()
			last := calls[len(calls)-1]
			recorded, err := providertest.ParseRequest(last.URL, last.Request)
			if err != nil {
				t.Fatal(err)
			}
			final := conv.Sessions[len(conv.Sessions)-1]
			steps := final.Turns[len(final.Turns)-1].Steps
			srv := providertest.NewServer(t, rec, nil)
			d := recordedDaemon(t, srv.URL, agentdtest.Config{})
			name := harness.WireProviders[conv.Wire].Describe().Name + "/" + recorded.Model
			if how.host != "" {
				to, err := url.Parse(srv.URL)
				if err != nil {
					t.Fatal(err)
				}
				d = harness.StartDaemon(t, agentdtest.Config{Providers: []model.Provider{openai.New(openai.Config{
					Name: "hosted", APIKey: "sk-recorded-0123456789", BaseURL: how.host, Transport: elsewhere{to},
				})}}, testdaemon.WithRetry(modelcall.Retry{Tries: 1}))
				name = "hosted/" + recorded.Model
			}
			clnt := d.Client()
			agent := harness.LLMAgent("recorded", name, recorded.System)
			for _, tool := range recorded.Tools {
				if err := client.AddRawTool(clnt, tool.Name, tool.Description+".", func(context.Context, json.RawMessage) (any, error) {
					return client.ToolOutput{Output: how.output, Parts: how.result}, nil
				}); err != nil {
					t.Fatal(err)
				}
				agent.GetLlm().ToolNames = append(agent.GetLlm().ToolNames, tool.Name)
			}
			var said strings.Builder
			for event, err := range clnt.Run(t.Context(), agent, recorded.Items[0].Text, client.WithParts(how.prompt...)) {
				if err != nil {
					t.Fatal(err)
				}
				if event.OutputChunk != nil && !event.OutputChunk.IsThought {
					said.WriteString(event.OutputChunk.Content)
				}
			}
			if want := steps[len(steps)-1].Text; !strings.HasSuffix(said.String(), want) || want == "" {
				t.Errorf("said %q, want %q", said.String(), want)
			}
			got := srv.Received()[len(srv.Received())-1]
			want := slices.DeleteFunc(slices.Clone(recorded.Items), func(i providertest.Item) bool { return slices.Contains(how.left, i.Text) })
			if err := providertest.CheckHistory(got.Body, got.Wire, want); err != nil {
				t.Errorf("the last request: %v\n%s", err, got.Body)
			}
			if !strings.Contains(harness.NoSpace(string(got.Body)), harness.NoSpace(how.sends)) {
				t.Errorf("the last request is\n%s\nand lacks\n%s", got.Body, how.sends)
			}
			if n := srv.Left(); n != 0 {
				t.Errorf("%d recorded model calls were not made", n)
			}
		})
	}
}
