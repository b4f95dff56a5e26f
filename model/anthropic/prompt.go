package anthropic

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// prompt is what the requests of a response have in common.
type prompt struct {
	begin [][]byte // joined, all up to the end of the conversation
	end   []byte   // the rest
	binds bool     // see family.binds
}

// newPrompt translates req. What was kept of the last request is not translated again.
func newPrompt(modelName string, req *model.Request, names *wire.Names) (*prompt, error) {
	if len(req.Chosen()) > 0 {
		req = req.Load()
	}
	of := name + "/" + modelName
	settings, err := wire.Keep(req, wire.SettingsKey(of, req, names), func() ([]byte, error) {
		r, err := newRequest(modelName, req, names)
		if err != nil {
			return nil, err
		}
		settings, err := wire.Settings(r, "messages", nil)
		if err != nil {
			return nil, invalid("the request cannot be written as JSON: %v", err)
		}
		return settings, nil
	})
	if err != nil {
		return nil, err
	}
	mark, err := newMark(req.Cache)
	if err != nil {
		return nil, err
	}
	family, deferred := familyOf(modelName), deferredOf(req, names)
	contents := req.ReferencesInWords(names.Wire, func(name string) bool { return deferred[names.Wire(name)] })
	if family.bare(req.Config.ThinkingConfig) {
		contents = withoutThoughts(contents)
	}
	pieces, err := req.Encoded.Pieces(fmt.Sprintf("%s/%d", of, names.State()), contents,
		func(c *genai.Content) ([]encoded.Piece, error) { return piecesOf(c, names, family) })
	if err != nil {
		return nil, err
	}
	kept := keptRuns(contents, pieces, func(name string) bool { return req.ToolSearch && deferred[name] })
	before, after := wire.Around(settings)
	w := &writer{out: make([][]byte, 0, wire.Count(pieces)+len(contents)+4)}
	w.out = append(w.out, before)
	w.messages(contents, pieces, kept)
	if len(w.out) == 1 {
		return nil, invalid("the conversation is empty")
	}
	w.out = append(w.out, endMessage)
	if mark != nil {
		w.mark(mark)
	}
	return &prompt{begin: w.out, end: after, binds: family.binds(req.Config.ThinkingConfig)}, nil
}

// deferredOf are the functions that are declared and deferred, by their names on the wire:
// Anthropic refuses references to others.
func deferredOf(req *model.Request, names *wire.Names) map[string]bool {
	if len(req.Deferred) == 0 {
		return nil
	}
	deferred, out := map[string]bool{}, map[string]bool{}
	for _, name := range req.Deferred {
		deferred[name] = true
	}
	for _, d := range req.Functions() {
		if deferred[d.Name] {
			out[names.Wire(d.Name)] = true
		}
	}
	return out
}

// The kinds of pieces, which are blocks with a comma before them. Those of a turn of the user
// go out in this order.
const (
	kindResult = iota // of a function
	kindBehind        // what has to stand behind all results
	kindSaid          // what else the user says
	kindBlock         // of the model
	kindCall          // of a function
	kindRun           // of Anthropic's own tools; Of is a *run
)

// lastOfUser is the last of the kinds of the user's.
const lastOfUser = kindSaid

// piecesOf translates a content.
func piecesOf(c *genai.Content, names *wire.Names, to family) (out []encoded.Piece, err error) {
	put := func(kind int, b *block, of any) error {
		v := any(b.raw)
		if b.raw == nil {
			v = (*plain)(b) // it need not be encoded twice
		}
		data, err := wire.Element(v)
		if err != nil {
			return invalid("the request cannot be written as JSON: %v", err)
		}
		out = append(out, encoded.Piece{Kind: kind, JSON: data, Of: of})
		return nil
	}
	if c != nil && c.Role != genai.RoleModel {
		return out, userBlocks(c.Parts, names, func(kind int, b *block) error { return put(kind, b, nil) })
	}
	blocks := assistantBlocks(c, names, to)
	for i := range blocks {
		kind, of := kindBlock, any(nil)
		if r := runOf(&blocks[i]); r != nil {
			kind, of = kindRun, r
		} else if blocks[i].Type == "tool_use" {
			kind = kindCall
		}
		if err := put(kind, &blocks[i], of); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// userBlocks translates what the user says, and what tools have returned.
func userBlocks(parts []*genai.Part, names *wire.Names, put func(kind int, b *block) error) error {
	for _, p := range parts {
		if p == nil {
			continue
		}
		var of []block
		kind := kindSaid
		switch media := wire.MediaOf(p); {
		case p.FunctionResponse != nil:
			b, behind, err := toolResult(p.FunctionResponse, names)
			if err != nil {
				return err
			}
			if refs := model.References(p); len(refs) > 0 {
				behind = append(behind, b.refer(refs, p.FunctionResponse, names)...)
			}
			if err := put(kindResult, &b); err != nil {
				return err
			}
			kind, of = kindBehind, behind
		case media != nil:
			b, err := mediaBlock(media)
			if err != nil {
				return err
			}
			of = []block{b}
		case strings.TrimSpace(p.Text) != "":
			of = []block{{Type: "text", Text: p.Text}}
		}
		for i := range of {
			if err := put(kind, &of[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// What stands between the pieces.
var (
	beginUser      = []byte(`{"role":"user","content":[`)
	beginAssistant = []byte(`{"role":"assistant","content":[`)
	toUser         = []byte(`]},{"role":"user","content":[`)
	toAssistant    = []byte(`]},{"role":"assistant","content":[`)
	endMessage     = []byte(`]}`)
	// Anthropic refuses empty messages and text that is only white space.
	emptyMessage = []byte(`,{"type":"text","text":"(empty message)"}`)
)

// writer puts messages together.
type writer struct {
	out   [][]byte      // what stands before them, and they
	model bool          // whether the last message is the model's
	ends  [maxMarks]int // where the last blocks of the user's newest messages are, 0 for none
}

// add adds a block to the last message, or begins one of another role.
func (w *writer) add(model bool, block []byte) {
	if first := len(w.out) == 1; !first && w.model == model {
		w.out = append(w.out, block)
	} else {
		begin := toUser
		switch {
		case first && model:
			begin = beginAssistant
		case first:
			begin = beginUser
		case model:
			begin = toAssistant
		}
		w.out, w.model = append(w.out, begin, block[1:]), model
		if !model {
			copy(w.ends[1:], w.ends[:])
		}
	}
	if !model {
		w.ends[0] = len(w.out) - 1
	}
}

// turn adds a turn of the user's.
func (w *writer) turn(pieces [][]encoded.Piece) {
	before := len(w.out)
	for kind := range lastOfUser + 1 {
		for _, of := range pieces {
			for i := range of {
				if of[i].Kind == kind {
					w.add(false, of[i].JSON)
				}
			}
		}
	}
	if len(w.out) == before {
		w.add(false, emptyMessage)
	}
}

// mark marks what the next call begins with too.
func (w *writer) mark(mark *cacheControl) {
	data := []byte(`,"cache_control":` + rawjson.JSON(mark) + `}`)
	for _, end := range w.ends {
		if end == 0 {
			continue
		}
		block := w.out[end]
		w.out[end] = block[:len(block)-1]
		w.out[end+1] = append(slices.Clip(data), w.out[end+1]...)
	}
}

// messages adds the messages, with those runs of Anthropic's tools that are kept.
func (w *writer) messages(contents []*genai.Content, pieces [][]encoded.Piece, kept map[string]bool) {
	for turn := range wire.Spans(contents) {
		if !turn.Model {
			w.turn(pieces[turn.From:turn.To])
			continue
		}
		for _, of := range pieces[turn.From:turn.To] {
			for i := range of {
				if r, ok := of[i].Of.(*run); !ok || kept[r.id] {
					w.add(true, of[i].JSON)
				}
			}
		}
	}
}

// body is the body of POST /v1/messages. A response that was paused continues behind what it
// has so far, and in the container in which its code ran, "" for none.
func (p *prompt) body(paused []block, container string) (*encoded.Body, error) {
	if len(paused) == 0 && container == "" {
		return encoded.NewBody(append(p.begin, p.end)...), nil // p.begin has room for it
	}
	b := encoded.NewBody(slices.Clone(p.begin)...)
	if len(paused) > 0 {
		data, err := wire.Element(message{Role: "assistant", Content: paused})
		if err != nil {
			return nil, invalid("the request cannot be written as JSON: %v", err)
		}
		b.Add(data)
	}
	if container == "" {
		b.Add(p.end)
	} else {
		b.Add(p.end[:len(p.end)-1], []byte(`,"container":`+rawjson.JSON(container)+`}`))
	}
	return b, nil
}

// message is a message by itself.
type message struct {
	Role    string  `json:"role"`
	Content []block `json:"content"`
}
