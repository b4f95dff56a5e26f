package wire

import (
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
)

// MaxLine bounds a line of a stream of Anthropic or Gemini, in bytes: a file that
// their tools have read, or that their model has made, comes in one line. It is above
// what a modelcall.Guard lets a response have.
const MaxLine = 24 << 20

const (
	// maxResponse bounds what is read of one response, in bytes. The framing of a
	// stream is several times its text.
	maxResponse = 128 << 20
	// maxRefusal is where the body of an error ends, in bytes.
	maxRefusal = 64 << 10
)

// bound makes reading more of resp's body than any honest response needs an error; the
// body of an error ends early in place of that, since its status counts whatever the rest
// is.
func bound(resp *http.Response) {
	if resp.StatusCode >= http.StatusBadRequest {
		resp.Body = &refusalBody{Reader: io.LimitReader(resp.Body, maxRefusal), Closer: resp.Body}
		return
	}
	resp.Body = &boundBody{ReadCloser: resp.Body, left: maxResponse}
}

// refusalBody is the beginning of an error's body.
type refusalBody struct {
	io.Reader
	io.Closer
}

// boundBody is owned by its reader.
type boundBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, seam.ErrResponseTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// ContentType returns the media type of resp without parameters, in lower case.
func ContentType(resp *http.Response) string {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return strings.ToLower(t)
}

// IsJSON reports whether a media type is JSON.
func IsJSON(mediaType string) bool {
	return mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
}

// Mark notes in p that it holds data the named provider wants back; opaque may
// be nil when it is the signature alone.
func Mark(p *genai.Part, provider string, opaque any) {
	if p.PartMetadata == nil {
		p.PartMetadata = map[string]any{}
	}
	p.PartMetadata[seam.MetaProvider] = provider
	if opaque != nil {
		p.PartMetadata[seam.MetaOpaque] = opaque
	}
}

// CutCall notes in the last part, if it is a function call whose arguments
// never began, that the response was cut off: a call without arguments must not
// be mistaken for one that has none. To be called when the token limit ended
// the response; began reports whether any argument text came.
func CutCall(content *genai.Content, began bool) {
	if began || content == nil || len(content.Parts) == 0 {
		return
	}
	last := content.Parts[len(content.Parts)-1]
	if last.FunctionCall != nil {
		last.PartMetadata[seam.MetaArgsError] = "the response was cut off by the token limit before the arguments"
	}
}
