package adkbridge

import "sync"

// A Runner keeps schemas for schemaBytes of their texts. Each text counts schemaCost
// bytes more, since a compiled schema takes more than a short text.
const (
	schemaBytes = 1 << 20
	schemaCost  = 512
)

// schemas caches the results of checkSchema by text. The same tools come with turn
// after turn, and compiling their schemas costs more than all else that planning does.
type schemas struct {
	mu     sync.Mutex                // protects the fields below
	byText map[string]map[string]any // none is changed
	bytes  int                       // of the texts, and schemaCost for each
}

// check is checkSchema with the cache. Calls with the same text return the same map.
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
