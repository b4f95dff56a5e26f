package anthropic

import "github.com/apzuk3/agentd/model/internal/wire"

// quick decodes a piece of a content block into e, whatever it held, as json.Unmarshal does, and reports whether data
// is one. Most of a stream is pieces of text.
func (e *event) quick(data []byte) bool {
	kind := e.Delta.Type // as a rule the one of the event before
	*e = event{Type: "content_block_delta"}
	s := wire.NewScan(data)
	var typed, changed bool
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "type":
			if typed = s.Is(e.Type); !typed {
				return false
			}
		case "index":
			e.Index = s.Int()
		case "delta":
			s.Once(&changed)
			e.Delta.quick(&s, kind)
		case "message", "content_block", "usage", "error":
			return false
		default:
			s.Unknown(key, "type", "index", "message", "content_block", "delta", "usage", "error")
		}
	}
	return s.Done() && typed
}

func (d *delta) quick(s *wire.Scan, kind string) {
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "type":
			d.Type = s.String(kind)
		case "text":
			d.Text = s.String("")
		case "thinking":
			d.Thinking = s.String("")
		case "partial_json":
			d.PartialJSON = s.String("")
		default: // a signature, a citation, or what the end of a message has
			s.Fail()
		}
	}
}
