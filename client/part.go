package client

import (
	"bytes"
	"errors"
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

// Part is a piece of what a user says, or of a tool's result: a text, a file, a file
// that is elsewhere, or a reference to a tool. [Text], [Inline], [FileURI] and
// [ToolReference] make one. Which it is shows in the field that is set: exactly one
// of Text, Data, URI and ToolName.
type Part struct {
	// Text is a text: at least one byte, at most 1 MiB.
	Text string
	// Data is a file itself, of the type MIMEType.
	Data []byte
	// URI is where a file of the type MIMEType is.
	URI string
	// ToolName refers to a tool of the agent.
	ToolName string
	// MIMEType is the media type of Data or URI, such as image/png.
	MIMEType string

	unknown *agentdv1.Part // one of a server that is newer than this client
}

// Text is a part that is text: at least one byte, at most 1 MiB.
func Text(text string) Part { return Part{Text: text} }

// Inline is a part that is a file itself, of a media type such as image/png. It
// has at least one byte; a message with all its parts is at most as long as
// [WithMaxMessageBytes] says here and its like on the server.
func Inline(mimeType string, data []byte) Part { return Part{MIMEType: mimeType, Data: data} }

// FileURI is a part that is a file which the model's provider fetches, or holds:
// an https, http or gs URI, or the provider's name of a file that was uploaded
// there, at most 8,192 bytes. Neither client nor server opens it.
func FileURI(mimeType, uri string) Part { return Part{MIMEType: mimeType, URI: uri} }

// ToolReference is a part that names a tool of the agent which is [Deferred]: a tool
// that looks for others returns it in a [ToolOutput], and the model may call the
// tool named from then on. It is refused in what a user says.
func ToolReference(name string) Part { return Part{ToolName: name} }

// Proto returns the part as a message, which shares Data. That of a part that no
// field says is as it came from the server.
func (p Part) Proto() *agentdv1.Part {
	switch {
	case p.Text != "":
		return &agentdv1.Part{Content: &agentdv1.Part_Text{Text: p.Text}}
	case len(p.Data) > 0:
		inline := &agentdv1.InlineData{MimeType: p.MIMEType, Data: p.Data}
		return &agentdv1.Part{Content: &agentdv1.Part_Inline{Inline: inline}}
	case p.URI != "":
		return &agentdv1.Part{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: p.MIMEType, Uri: p.URI}}}
	case p.ToolName != "":
		return &agentdv1.Part{Content: &agentdv1.Part_Tool{Tool: &agentdv1.ToolReference{ToolName: p.ToolName}}}
	case p.unknown != nil:
		return proto.CloneOf(p.unknown)
	default:
		return &agentdv1.Part{}
	}
}

// PartOf translates the part of a message, such as that of a Turn. It shares the data
// of an inline file. A kind of part that this client does not know has no field set.
func PartOf(m *agentdv1.Part) Part {
	switch c := m.GetContent().(type) {
	case *agentdv1.Part_Text:
		return Text(c.Text)
	case *agentdv1.Part_Inline:
		return Inline(c.Inline.GetMimeType(), c.Inline.GetData())
	case *agentdv1.Part_File:
		return FileURI(c.File.GetMimeType(), c.File.GetUri())
	case *agentdv1.Part_Tool:
		return ToolReference(c.Tool.GetToolName())
	default:
		return Part{unknown: m}
	}
}

// partsOf translates parts; nil for none.
func partsOf(parts []*agentdv1.Part) []Part {
	var out []Part
	for _, p := range parts {
		out = append(out, PartOf(p))
	}
	return out
}

// WithParts adds to what the user says in a [Client.Run], behind the prompt, which
// may then be empty: images and other files, or text between them. See [Text],
// [Inline] and [FileURI]. At most 64; they are copied. Which files a model takes is
// for its provider to say; others fail the run.
func WithParts(parts ...Part) PromptOption {
	return option{useRun, func(c *runConfig) {
		checked, err := checkParts(parts)
		if i := slices.IndexFunc(checked, func(p *agentdv1.Part) bool { return p.GetTool() != nil }); i >= 0 {
			err = fmt.Errorf("part %d: a reference to a tool is for the result of a tool, see client.ToolOutput", i+1)
		}
		if n := len(c.parts) + len(checked); err == nil && n > maxParts {
			err = tooManyParts(n)
		}
		if err != nil {
			c.failf(errorf(ErrInvalidRequest, "client.WithParts: %w", err))
			return
		}
		c.parts = slices.Concat(c.parts, checked)
	}}
}

// ToolOutput is a result of a tool that has more than text, such as an image: a
// handler returns it, or a pointer to it.
type ToolOutput struct {
	// Output is what the handler would return without parts; see [AddTool]. With
	// parts, nil is no text.
	Output any
	// Parts are what the model sees behind it: at most 64, see [Text], [Inline],
	// [FileURI] and [ToolReference]. They are copied when the handler returns.
	Parts []Part
}

// checkParts returns parts as messages of their own, or why they cannot be sent.
func checkParts(parts []Part) ([]*agentdv1.Part, error) {
	if len(parts) > maxParts {
		return nil, tooManyParts(len(parts))
	}
	var out []*agentdv1.Part
	for i, p := range parts {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("part %d: %w", i+1, err)
		}
		p.Data = bytes.Clone(p.Data)
		out = append(out, p.Proto())
	}
	return out, nil
}

func tooManyParts(n int) error {
	return fmt.Errorf("there are %d parts, at most %d are allowed", n, maxParts)
}

// check checks a part by the protocol's rules.
func (p Part) check() error {
	kinds := 0
	for _, set := range []bool{p.Text != "", len(p.Data) > 0, p.URI != "", p.ToolName != ""} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return errors.New("it holds more than one of Text, Data, URI and ToolName; make a part of each")
	case kinds == 0 && p.unknown != nil:
		return nil // the server knows it
	case kinds == 0 && p.MIMEType != "":
		return fmt.Errorf("the file of type %q is empty", p.MIMEType)
	case kinds == 0:
		return errors.New("it is empty: it holds neither a text nor a file nor a tool; " +
			"see client.Text, client.Inline, client.FileURI and client.ToolReference")
	case p.Text != "":
		if len(p.Text) > maxPartText || !utf8.ValidString(p.Text) {
			return fmt.Errorf("a text must be UTF-8 of 1 to %d bytes, got %d bytes", maxPartText, len(p.Text))
		}
		return nil
	case p.ToolName != "":
		if !toolName.MatchString(p.ToolName) {
			return fmt.Errorf("%.80q is no name of a tool", p.ToolName)
		}
		return nil
	case len(p.URI) > maxPartURI || !utf8.ValidString(p.URI):
		return fmt.Errorf("a URI must be UTF-8 of 1 to %d bytes, got %d bytes", maxPartURI, len(p.URI))
	default:
		return checkMimeType(p.MIMEType)
	}
}

func checkMimeType(s string) error {
	if !mimeType.MatchString(s) {
		return fmt.Errorf("%.80q is no media type such as image/png", s)
	}
	return nil
}

// equalParts reports whether two results have the same parts.
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
