package adkbridge

import "sync"

// How much a Runner keeps of schemas: so many bytes of their texts, of which each
// counts for so many more, since what is made of a short one is longer.
const (
	schemaBytes = 1 << 20
	schemaCost  = 512
)

// schemas are what checkSchema has made of texts: the same tools come with turn after
// turn, and to compile their schemas costs more than all else that a turn needs here.
type schemas struct {
	mu     sync.Mutex                // protects the fields below
	byText map[string]map[string]any // none is changed
	bytes  int                       // of the texts, and schemaCost for each
}

// check is checkSchema; who asks for the same schema is given the same map.
func (s *schemas) check(text *string) (map[string]any, error) {
	if text == nil {
		return checkSchema(nil)
	}
	s.mu.Lock()
	root := s.byText[*text]
	s.mu.Unlock()
	if root != nil {
		return root, nil
	}
	root, err := checkSchema(text)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cost := len(*text) + schemaCost
	if s.byText == nil || s.bytes+cost > schemaBytes {
		s.byText, s.bytes = map[string]map[string]any{}, 0
	}
	if s.byText[*text] == nil {
		s.byText[*text] = root
		s.bytes += cost
	}
	return root, nil
}
