package render

import (
	"cmp"
	"slices"
	"sync"
)

// Shared is a delta that several watchers receive. The wire form of the message that shows it alone is made once for
// each codec.
type Shared struct {
	mu    sync.Mutex // protects forms; held while one is made
	forms map[string][]byte
}

// Form returns the wire form in a codec, which encode makes. It must not be changed.
func (s *Shared) Form(codec string, encode func() ([]byte, error)) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if form := s.forms[codec]; form != nil {
		return form, nil
	}
	form, err := encode()
	if err != nil {
		return nil, err
	}
	if s.forms == nil {
		s.forms = map[string][]byte{}
	}
	s.forms[codec] = form
	return form, nil
}

// sharedMessage is a message that shows one delta, which other watchers receive too.
type sharedMessage struct {
	at     int // its place among the messages rendered since the last take
	shared *Shared
}

// Shared returns what the message with an index among the last ones of Take shows and other watchers receive too; nil
// for most.
func (r *Reader) Shared(index int) *Shared {
	i, found := slices.BinarySearchFunc(r.view.taken, index, func(m sharedMessage, index int) int {
		return cmp.Compare(m.at, index)
	})
	if !found {
		return nil
	}
	return r.view.taken[i].shared
}
