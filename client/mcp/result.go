package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
)

const (
	// maxAnswer is the longest timeout of a tool.
	maxAnswer = 24 * time.Hour
	// maxParts is how many parts a result may have.
	maxParts = 64
)

var mediaType = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}$`)

// content is a result as it is put together.
type content struct {
	texts []string
	parts []client.Part
	left  int // parts that were too many
}

// output is the result of a tool: its structured content, or else its text; and its files.
func (s *Server) output(res *sdk.CallToolResult) (*client.ToolOutput, error) {
	var c content
	for _, block := range res.Content {
		c.add(block)
	}
	if res.IsError {
		return nil, errors.New(cmp.Or(strings.ToValidUTF8(strings.Join(c.texts, "\n"), "\uFFFD"),
			"the tool failed and does not say why"))
	}
	if res.StructuredContent == nil {
		return c.output(), nil
	}
	text, err := structured(res.StructuredContent, c.texts)
	if err != nil {
		return nil, err
	}
	c.texts = []string{text}
	return c.output(), nil
}

// structured is the JSON of a structured content. A text that says the same, as servers should have one, has its
// numbers and the order of its keys as the server wrote them, and so is preferred.
func structured(v any, texts []string) (string, error) {
	for _, text := range texts {
		var same any
		if err := json.Unmarshal([]byte(text), &same); err == nil && reflect.DeepEqual(same, v) {
			return text, nil
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func (c *content) output() *client.ToolOutput {
	if c.left > 0 {
		c.texts = append(c.texts, fmt.Sprintf("[%d more files are left out]", c.left))
	}
	out := &client.ToolOutput{Parts: c.parts}
	if len(c.texts) > 0 || len(c.parts) == 0 {
		out.Output = strings.Join(c.texts, "\n")
	}
	return out
}

// add adds a block of a result.
func (c *content) add(block sdk.Content) {
	switch b := block.(type) {
	case *sdk.TextContent:
		c.texts = append(c.texts, b.Text)
	case *sdk.ImageContent:
		c.file(b.MIMEType, b.Data)
	case *sdk.AudioContent:
		c.file(b.MIMEType, b.Data)
	case *sdk.EmbeddedResource:
		c.resource(b.Resource)
	case *sdk.ResourceLink:
		c.link(b)
	}
}

// resource adds a resource that is within a result.
func (c *content) resource(r *sdk.ResourceContents) {
	switch {
	case r == nil:
	case r.Blob != nil:
		c.file(r.MIMEType, r.Blob)
	default:
		c.texts = append(c.texts, r.Text)
	}
}

func (c *content) file(mimeType string, data []byte) {
	if !mediaType.MatchString(mimeType) {
		mimeType = "application/octet-stream"
	}
	if len(data) > 0 {
		c.part(client.Inline(mimeType, data))
	}
}

func (c *content) part(p client.Part) {
	if len(c.parts) == maxParts {
		c.left++
		return
	}
	c.parts = append(c.parts, p)
}

// link adds a resource that is elsewhere: as a file if a model's provider can fetch it, else in words.
func (c *content) link(l *sdk.ResourceLink) {
	if u, err := url.Parse(l.URI); err == nil && len(l.URI) <= 8192 && mediaType.MatchString(l.MIMEType) {
		switch u.Scheme {
		case "https", "http", "gs":
			c.part(client.FileURI(l.MIMEType, l.URI))
			return
		}
	}
	words := []string{"resource", l.URI}
	for _, s := range []string{l.MIMEType, cmp.Or(l.Title, l.Name), l.Description} {
		if s = oneLine(s); s != "" {
			words = append(words, s)
		}
	}
	c.texts = append(c.texts, "["+strings.Join(words, " ")+"]")
}

// resource is what read_resource returns.
func (s *Server) resource(res *sdk.ReadResourceResult) *client.ToolOutput {
	var c content
	for _, r := range res.Contents {
		c.resource(r)
	}
	return c.output()
}
