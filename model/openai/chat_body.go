package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// The kinds of pieces on chat completions. A text is JSON without its quotes, since texts of a turn become one; others
// have a comma before them.
const (
	kindTool         = iota // the message of a tool
	kindResultFile          // a part of the user's message, from a result
	kindFile                // a part of the user's message
	kindText                // a text of the user
	kindSaid                // a text of the model
	kindThought             // a text of reasoning_content
	kindThoughtPlain        // a text of reasoning
	kindDetail              // one of reasoning_details
	kindCall                // a call
)

// chatBody is the body of POST /chat/completions. What was kept of the last request is not translated again.
func (l *llm) chatBody(req *model.Request, names *wire.Names) (*encoded.Body, error) {
	mistral := isMistral(l.cfg.BaseURL)
	if mistral {
		names = names.WithIDs(mistralID)
	}
	of := fmt.Sprintf("chat/%s/%s/%s", l.cfg.BaseURL, l.model, l.account)
	settings, err := wire.Keep(req, wire.SettingsKey(of, req, names), func() ([]byte, error) {
		r, err := l.newChatRequest(req, names)
		if err != nil {
			return nil, err
		}
		var first []byte
		if system := strings.Join(wire.System(req.Config), "\n\n"); system != "" {
			if first, err = rawjson.Marshal(chatMessage{Role: "system", Content: system}); err != nil {
				return nil, l.invalid("the request cannot be written as JSON: %v", err)
			}
		}
		return l.settings(r, "messages", first)
	})
	if err != nil {
		return nil, err
	}
	contents := req.ReferencesInWords(names.Wire, nil)
	pieces, err := req.Encoded.Pieces(fmt.Sprintf("%s/%d", of, names.State()), contents,
		func(c *genai.Content) ([]encoded.Piece, error) { return l.chatPieces(c, names) })
	if err != nil {
		return nil, err
	}
	before, after := wire.Around(settings)
	w := &chatWriter{llm: l, names: names, mistral: mistral, wanted: wantsThoughts(l.cfg.BaseURL)}
	w.out = append(make([][]byte, 0, 2*wire.Count(pieces)+len(contents)+2), before)
	for turn := range wire.Spans(contents) {
		if turn.Model {
			w.assistant(contents[turn.From:turn.To], pieces[turn.From:turn.To])
		} else {
			w.user(pieces[turn.From:turn.To])
		}
	}
	if len(w.out) == 1 {
		return nil, l.invalid("the conversation is empty")
	}
	if before[len(before)-1] == '[' { // the first message has no comma before it
		w.out[1] = w.out[1][1:]
	}
	return encoded.NewBody(append(w.out, after)...), nil
}

// chatPieces translates a content.
func (l *llm) chatPieces(c *genai.Content, names *wire.Names) ([]encoded.Piece, error) {
	if c == nil {
		return nil, nil
	}
	var out []encoded.Piece
	var failed error
	put := func(kind int, v any) {
		data, err := wire.Element(v)
		failed = errors.Join(failed, err)
		if _, ok := v.(string); ok && err == nil {
			data = data[len(`,"`) : len(data)-len(`"`)]
		}
		out = append(out, encoded.Piece{Kind: kind, JSON: data})
	}
	parts := slices.DeleteFunc(slices.Clone(c.Parts), func(p *genai.Part) bool { return p == nil })
	if c.Role == genai.RoleModel {
		l.chatAssistant(parts, names, put)
	} else if err := l.chatUser(parts, names, put); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, l.invalid("the request cannot be written as JSON: %v", failed)
	}
	return out, nil
}

// chatAssistant translates what the model said.
func (l *llm) chatAssistant(parts []*genai.Part, names *wire.Names, put func(kind int, v any)) {
	for _, p := range parts {
		opaque := adapter.Opaque(p, l.owner)
		switch media := wire.MediaOf(p); {
		case p.FunctionCall != nil:
			c := chatCall{
				ID: names.ID(p.FunctionCall.ID), Type: "function",
				Function: chatFunction{Name: names.Wire(p.FunctionCall.Name), Arguments: wire.ArgsText(p)},
			}
			if json.Valid([]byte(opaque)) {
				c.ExtraContent = json.RawMessage(opaque)
			}
			put(kindCall, c)
		case p.Thought && (opaque == "reasoning_content" || opaque == "reasoning"):
			kind := kindThought
			if opaque == "reasoning" {
				kind = kindThoughtPlain
			}
			if p.Text != "" {
				put(kind, p.Text)
			}
		case p.Thought:
			for _, d := range l.detailsOf(p, parts, names) {
				put(kindDetail, d)
			}
		case p.Text != "":
			put(kindSaid, p.Text)
		case media != nil:
			put(kindSaid, media.Placeholder())
		}
	}
}

// chatUser translates what tools have returned, and what the user says. A tool message has no room for files: they
// follow as the user's.
func (l *llm) chatUser(parts []*genai.Part, names *wire.Names, put func(kind int, v any)) error {
	for _, p := range parts {
		var files []*wire.Media
		kind := kindFile
		switch media := wire.MediaOf(p); {
		case p.FunctionResponse != nil:
			put(kindTool, chatMessage{
				Role: "tool", ToolCallID: names.ID(p.FunctionResponse.ID), Content: resultText(p.FunctionResponse),
			})
			kind, files = kindResultFile, wire.ResultMedia(p.FunctionResponse)
		case media != nil:
			files = []*wire.Media{media}
		case p.Text != "":
			put(kindText, p.Text)
		}
		for _, m := range files {
			part, err := l.mediaPart(m)
			if err != nil {
				return err
			}
			put(kind, part)
		}
	}
	return nil
}

// chatWriter puts messages together, each with a comma before it.
type chatWriter struct {
	llm     *llm
	names   *wire.Names
	mistral bool // see isMistral
	wanted  bool // see wantsThoughts

	out         [][]byte // what stands before them, and they
	tool        bool     // whether the last message is a tool's
	afterResult bool     // whether the last turn of the user's had results
}

// What stands between the pieces.
var (
	beginAssistant   = []byte(`,{"role":"assistant"`)
	beginContent     = []byte(`,{"role":"assistant","content":"`)
	beginThought     = []byte(`,"reasoning_content":"`)
	beginPlain       = []byte(`,"reasoning":"`)
	beginDetails     = []byte(`,"reasoning_details":[`)
	beginCalls       = []byte(`,"tool_calls":[`)
	blankThought     = []byte(`,"reasoning_content":" "`)
	beginUserText    = []byte(`,{"role":"user","content":"`)
	beginUserParts   = []byte(`,{"role":"user","content":[`)
	beginTextPart    = []byte(`,{"type":"text","text":"`)
	betweenTexts     = []byte(`\n\n`)
	afterTool        = []byte(`,{"role":"assistant","content":"OK"}`)
	endText          = []byte(`"`)
	endTextAndObject = []byte(`"}`)
	endList          = []byte(`]`)
	endListAndObject = []byte(`]}`)
	endObject        = []byte(`}`)
)

// assistant adds a turn of the model's, unless nothing of it goes back. Thinking goes back, in all turns, with calls
// and with what follows their results: there some servers require it. Elsewhere it is only tokens, which some servers
// refuse.
func (w *chatWriter) assistant(contents []*genai.Content, pieces [][]encoded.Piece) {
	var has [kindCall + 1]bool
	for _, of := range pieces {
		for i := range of {
			has[of[i].Kind] = true
		}
	}
	if !has[kindSaid] && !has[kindCall] {
		return
	}
	w.tool = false
	if has[kindSaid] {
		w.out = append(addKind(append(w.out, beginContent), pieces, kindSaid), endText)
	} else {
		w.out = append(w.out, beginAssistant)
	}
	if w.wanted || w.afterResult || has[kindCall] {
		switch {
		case has[kindThought]:
			w.out = append(addKind(append(w.out, beginThought), pieces, kindThought), endText)
		case w.wanted: // Of others there is none, and an empty one is refused.
			w.out = append(w.out, blankThought)
		}
		if has[kindThoughtPlain] {
			w.out = append(addKind(append(w.out, beginPlain), pieces, kindThoughtPlain), endText)
		}
		if has[kindDetail] {
			w.list(beginDetails, w.details(contents, pieces), kindDetail)
			w.out = append(w.out, endList)
		}
	}
	if has[kindCall] {
		w.list(beginCalls, pieces, kindCall)
		w.out = append(w.out, endListAndObject)
	} else {
		w.out = append(w.out, endObject)
	}
}

// list adds the pieces of a kind as a list without its end; there is one at least.
func (w *chatWriter) list(begin []byte, pieces [][]encoded.Piece, kind int) {
	n := len(w.out) + 1
	w.out = addKind(append(w.out, begin), pieces, kind)
	w.out[n] = w.out[n][1:]
}

// details returns pieces of the details of a turn. They may name calls in other contents of it.
func (w *chatWriter) details(contents []*genai.Content, pieces [][]encoded.Piece) [][]encoded.Piece {
	if len(contents) == 1 {
		return pieces
	}
	var turn genai.Content
	turn.Role = genai.RoleModel
	for _, c := range contents {
		if c != nil {
			turn.Parts = append(turn.Parts, c.Parts...)
		}
	}
	whole, err := w.llm.chatPieces(&turn, w.names)
	if err != nil { // they were encoded before
		return pieces
	}
	return [][]encoded.Piece{whole}
}

// user adds a turn of the user's: the tool results first, then what the user said.
func (w *chatWriter) user(pieces [][]encoded.Piece) {
	before := len(w.out)
	w.out = addKind(w.out, pieces, kindTool)
	w.afterResult = len(w.out) > before
	w.tool = w.tool || w.afterResult
	files, texts := false, false
	for _, of := range pieces {
		for i := range of {
			files = files || of[i].Kind == kindFile || of[i].Kind == kindResultFile
			texts = texts || of[i].Kind == kindText
		}
	}
	if !files && !texts {
		return
	}
	if w.tool && w.mistral { // It refuses a user right behind a tool.
		w.out = append(w.out, afterTool)
	}
	w.tool = false
	if files {
		w.userParts(pieces)
		return
	}
	// A plain text is what every server understands.
	w.out = append(w.out, beginUserText)
	first := true
	for _, of := range pieces {
		for i := range of {
			if of[i].Kind != kindText {
				continue
			}
			if !first {
				w.out = append(w.out, betweenTexts)
			}
			first = false
			w.out = append(w.out, of[i].JSON)
		}
	}
	w.out = append(w.out, endTextAndObject)
}

// userParts adds a message of the user's with files.
func (w *chatWriter) userParts(pieces [][]encoded.Piece) {
	n := len(w.out) + 1
	w.out = addKind(append(w.out, beginUserParts), pieces, kindResultFile)
	for _, of := range pieces {
		for i := range of {
			switch of[i].Kind {
			case kindFile:
				w.out = append(w.out, of[i].JSON)
			case kindText:
				w.out = append(w.out, beginTextPart, of[i].JSON, endTextAndObject)
			}
		}
	}
	w.out[n] = w.out[n][1:]
	w.out = append(w.out, endListAndObject)
}
