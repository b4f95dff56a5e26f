package adkbridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/session/record"
)

// dropped is what is in a log in place of a text that a tool was given, or that it gave. A later model reads it too.
const dropped = "(not kept after its turn)"

// noArgs are the arguments of a call whose own are not kept.
const noArgs = "{}"

// WithoutPayloads returns those records of a turn that say what its tools were given and returned, without it:
// arguments become {}, and results a text that says so. Calls keep their ids, names and outcomes, and the state that
// they set. What the engine's own tools ask and are told stays, and so does what models say. recs are all records of a
// turn, in order, read twice; none of them is changed. A record that has nothing to drop is not returned: a second time
// gives none.
func (*Runner) WithoutPayloads(recs iter.Seq2[record.Record, error]) ([]record.Record, error) {
	d := dropping{
		calls: map[string]bool{}, outcomes: map[string]record.Outcome{}, outputs: map[string]bool{},
		malformed: map[string]bool{}, edited: map[string]bool{},
	}
	for rec, err := range recs {
		if err != nil {
			return nil, err
		}
		if err := d.look(rec); err != nil {
			return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
	}
	var out []record.Record
	for rec, err := range recs {
		if err != nil {
			return nil, err
		}
		data, err := d.without(rec)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		if data != nil && !bytes.Equal(data, rec.Data) {
			rec.Data = data
			out = append(out, rec)
		}
	}
	return out, nil
}

// Forget drops what is in memory of a session between its turns.
func (r *Runner) Forget(tenant, sessionID string) { r.cache.take(cacheKey{tenant, sessionID}, 0) }

// dropping is a turn whose payloads are dropped.
type dropping struct {
	calls    map[string]bool           // of tools, by id
	outcomes map[string]record.Outcome // of those that have a result
	outputs  map[string]bool           // of those whose result is an output
	// malformed are calls whose arguments are no JSON object, edited those whose arguments a person has changed.
	malformed, edited map[string]bool
}

// isEngineTool reports whether calls of a name are the engine's own.
func isEngineTool(name string) bool {
	return slices.Contains(reservedTools, name) || name == askLoopTool || name == toolSearchTool
}

// look notes which calls there are.
func (d *dropping) look(rec record.Record) error {
	switch rec.Kind {
	case record.KindEvent:
		s, err := decode(rec.Data)
		if err != nil || s.Content == nil {
			return err
		}
		for _, p := range callsOf(s.Content) {
			id := p.FunctionCall.ID
			d.calls[id] = !isEngineTool(p.FunctionCall.Name) && !slices.Contains(s.CustomMetadata.Agentd.Agents, id)
			_, d.malformed[p.FunctionCall.ID] = p.PartMetadata[seam.MetaArgsError]
		}
	case record.KindToolResult:
		var res record.ToolResult
		if err := unmarshal(rec.Data, &res); err != nil {
			return err
		}
		d.outcomes[res.CallID], d.outputs[res.CallID] = res.Outcome, res.Output != nil
	case record.KindInteractionResolved:
		var f record.InteractionResolved
		if err := unmarshal(rec.Data, &f); err != nil {
			return err
		}
		d.edited[f.ID] = d.edited[f.ID] || f.Decision == record.Approve && f.Input != nil
	default:
	}
	return nil
}

// without returns the data of a record without payloads; nil for one that has none.
func (d *dropping) without(rec record.Record) ([]byte, error) {
	switch rec.Kind {
	case record.KindEvent:
		return d.event(rec.Data)
	case record.KindToolResult:
		return d.result(rec.Data)
	case record.KindInteractionResolved:
		var f record.InteractionResolved
		if err := unmarshal(rec.Data, &f); err != nil || !d.calls[f.ID] {
			return nil, err
		}
		switch {
		case f.Input != nil:
			f.Input = json.RawMessage(noArgs)
		case f.N > 0 && f.Answer != "": // a person's to the tool
			f.Answer = ""
		default:
			return nil, nil
		}
		return marshal(f)
	case record.KindInteractionRaised: // it says what the tool is about to do with its arguments
		var q record.Question
		if err := unmarshal(rec.Data, &q); err != nil || !d.calls[q.CallID] || q.Text == "" && len(q.Choices) == 0 {
			return nil, err
		}
		q.Text, q.Choices = "", nil
		return marshal(q)
	case record.KindRawPayload:
		var f record.RawPayload
		if err := unmarshal(rec.Data, &f); err != nil || len(f.Body) == 0 {
			return nil, err
		}
		f.Body, f.Truncated = nil, true
		return marshal(f)
	default:
		return nil, nil
	}
}

// result drops the payload of a result. The texts of outcomes other than a tool's own are not its payload.
func (d *dropping) result(data []byte) ([]byte, error) {
	var res record.ToolResult
	if err := unmarshal(data, &res); err != nil || !d.calls[res.CallID] || res.Outcome != record.Returned {
		return nil, err
	}
	if res.Output != nil {
		res.Output = new(dropped)
	} else {
		res.Error = dropped
	}
	res.Parts = slices.DeleteFunc(res.Parts, func(p *agentdv1.Part) bool { return p.GetTool() == nil })
	return marshal(res)
}

// event drops the payloads of an event.
func (d *dropping) event(data []byte) ([]byte, error) {
	s, err := decode(data)
	if err != nil || !d.eventHas(s) {
		return nil, err
	}
	for _, p := range s.Content.Parts {
		d.part(p)
	}
	m := &s.CustomMetadata.Agentd
	for i := range m.Rest {
		m.Rest[i].Input = nil
	}
	if m.Dropped = true; m.Usage != nil {
		m.UsageForm = usageForm // decode has converted it
	}
	return marshal(s)
}

// eventHas reports whether an event has payloads that are there still.
func (d *dropping) eventHas(s *stored) bool {
	if s.Content == nil || s.CustomMetadata.Agentd.Dropped {
		return false
	}
	rest := slices.ContainsFunc(s.CustomMetadata.Agentd.Rest, func(c remote.Call) bool { return len(c.Input) > 0 })
	return rest || slices.ContainsFunc(s.Content.Parts, func(p *genai.Part) bool {
		return p.FunctionCall != nil && d.calls[p.FunctionCall.ID] ||
			p.FunctionResponse != nil && d.calls[p.FunctionResponse.ID]
	})
}

// part drops the payload of a part.
func (d *dropping) part(p *genai.Part) {
	if c := p.FunctionCall; c != nil && d.calls[c.ID] {
		c.Args = map[string]any{}
		delete(p.PartMetadata, seam.MetaArgs)
		if _, bad := p.PartMetadata[seam.MetaArgsError]; bad {
			p.PartMetadata[seam.MetaArgsError] = dropped
		}
	}
	r := p.FunctionResponse
	if r == nil || !d.calls[r.ID] {
		return
	}
	switch outcome, settled := d.outcomes[r.ID]; {
	case d.malformed[r.ID]:
		r.Response = errorResult(malformedText + dropped)
	case !settled || outcome != record.Returned: // the engine's text, or a person's
		return
	case d.outputs[r.ID]:
		r.Response = map[string]any{"output": dropped}
	default:
		r.Response = errorResult(dropped)
	}
	if d.edited[r.ID] {
		r.Response["note"] = editedText + noArgs
	}
	r.Parts = nil
}

// marshal returns the JSON of a record.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
