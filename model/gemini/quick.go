package gemini

import (
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model/internal/wire"
)

// quickChunk is where the common event of a stream is decoded, one after another: one candidate with plain text, and
// what is counted and said beside it.
type quickChunk struct {
	chunk      chunk
	candidates [1]candidate
	usage      usage
}

// read returns what json.Unmarshal makes of an event, and nil for one that is not common. It is valid until the next
// one is read. model is the name that the model's version probably has.
func (q *quickChunk) read(data []byte, model string) *chunk {
	q.chunk = chunk{}
	s := wire.NewScan(data)
	var candidates, counted bool
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "candidates":
			s.Once(&candidates)
			q.readCandidates(&s)
		case "usageMetadata":
			s.Once(&counted)
			q.readUsage(&s)
		case "modelVersion":
			q.chunk.ModelVersion = s.String(model)
		case "promptFeedback", "error":
			s.Fail()
		default:
			s.Unknown(key, "candidates", "usageMetadata", "modelVersion", "promptFeedback", "error")
		}
	}
	if !s.Done() {
		return nil
	}
	return &q.chunk
}

func (q *quickChunk) readCandidates(s *wire.Scan) {
	c := &q.candidates[0]
	*c = candidate{Content: content{Parts: c.Content.Parts[:0]}}
	q.chunk.Candidates = q.candidates[:0]
	for s.Enter('['); s.Next(']'); {
		if len(q.chunk.Candidates) == 1 {
			s.Fail()
			return
		}
		q.chunk.Candidates = q.candidates[:]
		c.quick(s)
	}
}

func (c *candidate) quick(s *wire.Scan) {
	said := false
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "content":
			s.Once(&said)
			c.Content.quick(s)
		case "finishReason":
			c.FinishReason = genai.FinishReason(s.String(string(genai.FinishReasonStop)))
		case "index":
			c.Index = s.Int()
		case "safetyRatings":
			c.Ratings = s.Raw()
		case "finishMessage", "groundingMetadata", "urlContextMetadata", "citationMetadata":
			s.Fail()
		default:
			s.Unknown(key, "content", "finishReason", "index", "safetyRatings", "finishMessage", "groundingMetadata",
				"urlContextMetadata", "citationMetadata")
		}
	}
}

func (c *content) quick(s *wire.Scan) {
	seen := false
	for s.Enter('{'); s.Next('}'); {
		if key := s.Key(); string(key) != "parts" {
			s.Unknown(key, "parts")
			continue
		}
		s.Once(&seen)
		for s.Enter('['); s.Next(']'); {
			c.Parts = append(c.Parts, quickPart(s))
		}
	}
}

// quickPart reads a part that is plain text.
func quickPart(s *wire.Scan) (p chunkPart) {
	isText := false
	for s.Enter('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "text":
			p.text, isText = s.String(""), true
		case "thought":
			p.thought = s.Bool()
		default: // any other member may make it another kind of part
			s.Fail()
		}
	}
	if !isText {
		s.Fail()
	}
	return p
}

func (q *quickChunk) readUsage(s *wire.Scan) {
	u := &q.usage
	*u = usage{}
	q.chunk.UsageMetadata = u
	for s.Enter('{'); s.Next('}'); {
		switch key := s.Key(); string(key) {
		case "promptTokenCount":
			u.Prompt = s.Tokens()
		case "toolUsePromptTokenCount":
			u.ToolPrompt = s.Tokens()
		case "candidatesTokenCount":
			u.Candidates = s.Tokens()
		case "cachedContentTokenCount":
			u.Cached = s.Tokens()
		case "thoughtsTokenCount":
			u.Thoughts = s.Tokens()
		default:
			s.Unknown(key, "promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount",
				"cachedContentTokenCount", "thoughtsTokenCount")
		}
	}
}
