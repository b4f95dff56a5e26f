package openai

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// TestFilesByServer: what chat completions takes depends on whose server it is;
// what a model says that it takes is what it sends.
func TestFilesByServer(t *testing.T) {
	const mistral, other = "https://api.mistral.ai/v1", "https://openrouter.ai/api/v1"
	for _, c := range []struct {
		base, kind, uri string
		want            string // "" is refused
	}{
		{"", "image/png", "", `{"type":"image_url","image_url":{"url":"data:image/png;base64,eA=="}}`},
		{"", "image/jpg", "", `{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,eA=="}}`},
		{"", "image/tiff", "", ""},
		{"", "video/mp4", "", ""},
		{"", "audio/mpeg", "", `{"type":"input_audio","input_audio":{"data":"eA==","format":"mp3"}}`},
		{"", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "", `{"type":"file","file":{"file_data":"data:application/vnd.openxmlformats-officedocument.spreadsheetml.sheet;base64,eA==","filename":"file.xlsx"}}`},
		{other, "image/tiff", "", `{"type":"image_url","image_url":{"url":"data:image/tiff;base64,eA=="}}`},
		{other, "image/png", "gs://b/x", ""},
		{other, "image/tiff", "gs://b/x", ""},
		{other, "video/mp4", "https://x/y", `{"type":"video_url","video_url":{"url":"https://x/y"}}`},
		{other, "video/mp4", "gs://b/x", ""},
		{other, "video/mp4", "file-1", ""},
		{other, "audio/flac", "", ""},
		{other, "application/pdf", "https://x/y", ""},
		{mistral, "application/pdf", "https://x/y", `{"type":"document_url","document_url":"https://x/y"}`},
		{mistral, "application/pdf", "gs://b/x", ""},
		{mistral, "application/pdf", "file-1", ""},
		{mistral, "application/pdf", "", `{"type":"document_url","document_url":"data:application/pdf;base64,eA=="}`},
	} {
		l := openFor(t, Config{API: Chat, BaseURL: c.base}, "m")
		m := &wire.Media{MIMEType: wire.Of(model.File{MIMEType: c.kind}).MIMEType, URL: c.uri}
		if c.uri == "" {
			m.Data = []byte("x")
		}
		part, err := l.mediaPart(m)
		taken := l.takes(model.File{MIMEType: c.kind, URI: c.uri})
		if c.want == "" {
			e, ok := errors.AsType[*model.Error](err)
			if !ok || e.Kind != model.KindInvalid || e.Provider != "openai" || !strings.Contains(e.Message, c.kind) || taken == nil || taken.Error() != err.Error() {
				t.Errorf("%s at %q: error %v, told before %v", c.kind, c.base, err, taken)
			}
			continue
		}
		got, encErr := json.Marshal(part)
		if err != nil || encErr != nil || taken != nil || string(got) != c.want {
			t.Errorf("%s at %q: %s, error %v, told before %v, want %s", c.kind, c.base, got, errors.Join(err, encErr), taken, c.want)
		}
	}
	if err := openFor(t, Config{}, "m").takes(model.File{MIMEType: "audio/wav"}); err == nil || !strings.Contains(err.Error(), "audio/wav") {
		t.Errorf("sound over Responses: %v", err)
	}
}
