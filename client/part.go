package client

import (
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Limits of parts; the server has the same.
const (
	maxParts    = 64
	maxPartText = 1 << 20
	maxPartURI  = 8192
)

var mimeType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}$`)

// Text is a part that is text: at least one byte, at most 1 MiB.
func Text(text string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Text{Text: text}}
}

// Inline is a part that is a file itself, of a media type such as image/png. It
// has at least one byte; a message with all its parts is at most as long as
// [WithMaxMessageBytes] says here and its like on the server.
func Inline(mimeType string, data []byte) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: mimeType, Data: data}}}
}

// FileURI is a part that is a file which the model's provider fetches, or holds:
// an https, http or gs URI, or the provider's name of a file that was uploaded
// there, at most 8,192 bytes. Neither client nor server opens it.
func FileURI(mimeType, uri string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: mimeType, Uri: uri}}}
}

// ToolReference is a part that names a tool of the agent which is [Deferred]: a tool
// that looks for others returns it in a [ToolOutput], and the model may call the
// tool named from then on. It is refused in what a user says.
func ToolReference(name string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Tool{Tool: &agentdv1.ToolReference{ToolName: name}}}
}

// WithParts adds to what the user says in a [Client.Run], behind the prompt, which
// may then be empty: images and other files, or text between them. See [Text],
// [Inline] and [FileURI]. At most 64; they are copied. Which files a model takes is
// for its provider to say; others fail the run.
func WithParts(parts ...*agentdv1.Part) RunOption {
	return func(c *runConfig) {
		checked, err := checkParts(append(c.parts, parts...))
		if i := slices.IndexFunc(checked, func(p *agentdv1.Part) bool { return p.GetTool() != nil }); i >= 0 {
			err = fmt.Errorf("part %d: a reference to a tool is for the result of a tool, see client.ToolOutput", i+1)
		}
		if err != nil {
			c.fail(errorf(ErrInvalidRequest, "client.WithParts: %w", err))
			return
		}
		c.parts = checked
	}
}

// ToolOutput is a result of a tool that has more than text, such as an image: a
// handler returns it, or a pointer to it.
type ToolOutput struct {
	// Output is what the handler would return without parts; see [AddTool]. With
	// parts, nil is no text.
	Output any
	// Parts are what the model sees behind it: at most 64, see [Text], [Inline],
	// [FileURI] and [ToolReference]. They are copied when the handler returns.
	Parts []*agentdv1.Part
}

// checkParts returns a copy of parts, or why they cannot be sent.
func checkParts(parts []*agentdv1.Part) ([]*agentdv1.Part, error) {
	if len(parts) > maxParts {
		return nil, fmt.Errorf("there are %d parts, at most %d are allowed", len(parts), maxParts)
	}
	var out []*agentdv1.Part
	for i, p := range parts {
		if err := checkPart(p); err != nil {
			return nil, fmt.Errorf("part %d: %w", i+1, err)
		}
		out = append(out, proto.CloneOf(p))
	}
	return out, nil
}

// checkPart checks a part by the protocol's rules.
func checkPart(p *agentdv1.Part) error {
	switch c := p.GetContent().(type) {
	case *agentdv1.Part_Text:
		if c.Text == "" || len(c.Text) > maxPartText || !utf8.ValidString(c.Text) {
			return fmt.Errorf("a text must be UTF-8 of 1 to %d bytes, got %d bytes", maxPartText, len(c.Text))
		}
		return nil
	case *agentdv1.Part_Inline:
		if len(c.Inline.GetData()) == 0 {
			return fmt.Errorf("the file of type %q is empty", c.Inline.GetMimeType())
		}
		return checkMimeType(c.Inline.GetMimeType())
	case *agentdv1.Part_File:
		if uri := c.File.GetUri(); uri == "" || len(uri) > maxPartURI || !utf8.ValidString(uri) {
			return fmt.Errorf("a URI must be UTF-8 of 1 to %d bytes, got %d bytes", maxPartURI, len(uri))
		}
		return checkMimeType(c.File.GetMimeType())
	case *agentdv1.Part_Tool:
		if !toolName.MatchString(c.Tool.GetToolName()) {
			return fmt.Errorf("%.80q is no name of a tool", c.Tool.GetToolName())
		}
		return nil
	default:
		return fmt.Errorf("it holds neither a text nor a file nor a tool; make it with client.Text, client.Inline, client.FileURI or client.ToolReference")
	}
}

func checkMimeType(s string) error {
	if !mimeType.MatchString(s) {
		return fmt.Errorf("%.80q is no media type such as image/png", s)
	}
	return nil
}

// equalParts tells whether two results have the same parts.
func equalParts(a, b []*agentdv1.Part) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sizeOf is how many bytes parts take.
func sizeOf(parts []*agentdv1.Part) int {
	size := 0
	for _, p := range parts {
		size += proto.Size(p)
	}
	return size
}
