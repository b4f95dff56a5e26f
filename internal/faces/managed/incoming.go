package managed

import (
	"encoding/base64"
	"fmt"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// incoming is an event that a client posts.
type incoming struct {
	at      string // where it stands in the body
	kind    string
	text    string           // of a message, or a result
	parts   []*agentdv1.Part // what stands behind it
	of      string           // the id of the event of the call
	isError bool
	allow   bool
	message *string // of a denial
}

const (
	maxIncoming = 512
	maxBlocks   = 64
)

// readEvents reads the events of a request.
func readEvents(in *input, name string) (out []incoming, err error) {
	for _, e := range in.objects(name, maxIncoming) {
		out = append(out, readEvent(e))
	}
	return out, in.err()
}

// readEvent reads one event. Clients may post again what they have read: what the server sets is skipped.
func readEvent(e *input) incoming {
	ev := incoming{at: e.path, kind: e.must("type", maxName)}
	switch ev.kind {
	case "user.message":
		ev.text, ev.parts = readContent(e, true)
	case "user.custom_tool_result":
		ev.of, ev.isError = e.must("custom_tool_use_id", maxName), e.flag("is_error")
		ev.text, ev.parts = readContent(e, false)
	case "user.tool_result":
		ev.of, ev.isError = e.must("tool_use_id", maxName), e.flag("is_error")
		ev.text, ev.parts = readContent(e, false)
	case "user.tool_confirmation":
		ev.of = e.must("tool_use_id", maxName)
		ev.allow = e.one("result", "allow", "deny") == "allow"
		if !e.absent("deny_message") {
			text := e.text("deny_message", 64<<10)
			ev.message = &text
		}
		e.raw("deny_message")
		if ev.allow && ev.message != nil {
			e.failf("deny_message", "is there and result is \"allow\": leave one out")
		}
	case "user.interrupt":
		if e.text("session_thread_id", maxName) != "" {
			e.failf("session_thread_id", "is there: an interrupt ends the whole turn, so leave it out")
		}
	default:
		e.failf("type", "is %.80q, which is not an event that this server takes: it takes user.message, "+
			"user.custom_tool_result, user.tool_result, user.tool_confirmation and user.interrupt", ev.kind)
	}
	if ev.isError && len(ev.parts) > 0 {
		e.failf("content", "has images or documents and is_error is true: an error has text alone")
	}
	_ = e.done() // e keeps the error
	return ev
}

// readContent reads content. Of a message the first text is its text, and the rest are parts; of a result all texts
// are.
func readContent(e *input, message bool) (text string, parts []*agentdv1.Part) {
	var texts []string
	blocks := e.objects("content", maxBlocks)
	if message && len(blocks) == 0 {
		e.failf("content", "is missing or empty, want a list of blocks such as {\"type\": \"text\", \"text\": \"…\"}")
	}
	for _, b := range blocks {
		switch kind := b.one("type", "text", "image", "document"); kind {
		case "text":
			s := b.text("text", maxText)
			if s == "" && message {
				b.failf("text", "is missing or empty, want a string")
			}
			if !message || len(texts)+len(parts) == 0 && strings.TrimSpace(s) != "" {
				texts = append(texts, s)
			} else {
				parts = append(parts, &agentdv1.Part{Content: &agentdv1.Part_Text{Text: s}})
			}
		case "image", "document":
			if p := readSource(b, kind); p != nil {
				parts = append(parts, p)
			}
			b.unsupported("title", "context")
		}
		_ = b.done() // b keeps the error
	}
	return strings.Join(texts, "\n"), parts
}

// readSource reads where an image or a document is.
func readSource(b *input, kind string) *agentdv1.Part {
	src := b.object("source")
	if src == nil {
		b.failf("source", `is missing, want {"type": "base64", "media_type": "image/png", "data": "…"}`)
		return nil
	}
	defer func() { _ = src.done() }() // src keeps the error
	switch src.one("type", "base64", "url", "text") {
	case "base64":
		mime, data := src.must("media_type", maxName), src.must("data", 1<<30)
		bytes, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			src.failf("data", "is not base64: %v", err)
		}
		return &agentdv1.Part{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: mime, Data: bytes}}}
	case "url":
		uri := src.must("url", 8192)
		return &agentdv1.Part{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{
			MimeType: mimeOf(uri, kind), Uri: uri,
		}}}
	case "text":
		if kind == "document" {
			src.text("media_type", maxName)
			return &agentdv1.Part{Content: &agentdv1.Part_Text{Text: src.must("data", maxText)}}
		}
		src.failf("type", "is \"text\", which an image cannot be")
	}
	return nil
}

// mimeOf is the media type of a file by its address, which does not say it.
func mimeOf(uri, kind string) string {
	path, _, _ := strings.Cut(strings.ToLower(uri), "?")
	for _, m := range [][2]string{
		{".png", "image/png"}, {".gif", "image/gif"}, {".webp", "image/webp"}, {".jpg", "image/jpeg"},
		{".jpeg", "image/jpeg"}, {".txt", "text/plain"}, {".pdf", "application/pdf"},
	} {
		if strings.HasSuffix(path, m[0]) && strings.HasPrefix(m[1], "image/") == (kind == "image") {
			return m[1]
		}
	}
	if kind == "image" {
		return "image/jpeg"
	}
	return "application/pdf"
}

// content is what was posted, as it is stored.
func (e *incoming) content() []block { return contentOf(e.text, e.parts) }

// refusef refuses an event.
func (e *incoming) refusef(format string, args ...any) error {
	return badf("%s %s", e.at, fmt.Sprintf(format, args...))
}
