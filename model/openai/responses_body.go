package openai

import (
	"errors"
	"fmt"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// The kinds of pieces on the Responses API, each with a comma before it.
const (
	kindOutput    = iota // an item: a tool's result
	kindPart             // a part of the user's message
	kindItem             // an item of the model's
	kindReasoning        // an item of the model's, which goes out only before another one
)

// responsesBody is the body of POST /responses. What was kept of the last request is not translated again.
func (l *llm) responsesBody(req *model.Request, names *wire.Names) (*encoded.Body, error) {
	of := fmt.Sprintf("responses/%s/%s/%s", l.cfg.BaseURL, l.model, l.account)
	settings, err := wire.Keep(req, wire.SettingsKey(of, req, names), func() ([]byte, error) {
		r, err := l.newResponsesRequest(req, names)
		if err != nil {
			return nil, err
		}
		return l.settings(r, "input", nil)
	})
	if err != nil {
		return nil, err
	}
	contents := req.ReferencesInWords(names.Wire, nil)
	pieces, err := req.Encoded.Pieces(fmt.Sprintf("%s/%d/%t", of, names.State(), req.ToolSearch), contents,
		func(c *genai.Content) ([]encoded.Piece, error) { return l.responsesPieces(c, names, req.ToolSearch) })
	if err != nil {
		return nil, err
	}
	before, after := wire.Around(settings)
	out := make([][]byte, 0, wire.Count(pieces)+len(contents)+3)
	out = append(out, before)
	for turn := range wire.Spans(contents) {
		if turn.Model {
			out = addItems(out, pieces[turn.From:turn.To])
		} else {
			out = addInput(out, pieces[turn.From:turn.To])
		}
	}
	if len(out) == 1 {
		return nil, l.invalid("the conversation is empty")
	}
	out[1] = out[1][1:] // the first item has no comma before it
	return encoded.NewBody(append(out, after)...), nil
}

// settings encodes the settings of a request, see wire.Settings.
func (l *llm) settings(request any, key string, first []byte) ([]byte, error) {
	settings, err := wire.Settings(request, key, first)
	if err != nil {
		return nil, l.invalid("the request cannot be written as JSON: %v", err)
	}
	return settings, nil
}

// responsesPieces translates a content.
func (l *llm) responsesPieces(c *genai.Content, names *wire.Names, searches bool) ([]encoded.Piece, error) {
	if c == nil {
		return nil, nil
	}
	var out []encoded.Piece
	var failed error
	put := func(kind int, item any) {
		data, err := wire.Element(item)
		failed = errors.Join(failed, err)
		out = append(out, encoded.Piece{Kind: kind, JSON: data})
	}
	if c.Role == genai.RoleModel {
		l.assistantItems(c.Parts, names, searches, put)
	} else if err := l.userItems(c.Parts, names, put); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, l.invalid("the request cannot be written as JSON: %v", failed)
	}
	return out, nil
}

// addItems adds a turn of the model's, up to the last item that is no reasoning.
func addItems(out [][]byte, pieces [][]encoded.Piece) [][]byte {
	end := len(out)
	for _, of := range pieces {
		for i := range of {
			out = append(out, of[i].JSON)
			if of[i].Kind != kindReasoning {
				end = len(out)
			}
		}
	}
	return out[:end]
}

// What the user's message stands in.
var (
	beginInput = []byte(`,{"type":"message","role":"user","content":[`)
	endInput   = []byte(`]}`)
)

// addInput adds a turn of the user's: results first, then what the user says in one message.
func addInput(out [][]byte, pieces [][]encoded.Piece) [][]byte {
	out = addKind(out, pieces, kindOutput)
	parts := addKind(append(out, beginInput), pieces, kindPart)
	if len(parts) == len(out)+1 {
		return out
	}
	first := &parts[len(out)+1]
	*first = (*first)[1:]
	return append(parts, endInput)
}

// addKind adds the pieces of a kind.
func addKind(out [][]byte, pieces [][]encoded.Piece, kind int) [][]byte {
	for _, of := range pieces {
		for i := range of {
			if of[i].Kind == kind {
				out = append(out, of[i].JSON)
			}
		}
	}
	return out
}
