package render

import (
	"cmp"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/recent"
)

// Shared is a message that several watchers receive: one that shows a delta alone, or one that shows part of a record
// which is kept ([Shared.IsKept]). Its wire form is made once for each codec. Its methods may be called from any
// goroutine.
type Shared struct {
	entry *recent.Entry         // that the message shows a part of; nil for a delta
	msg   *agentdv1.RunResponse // what it shows, as if it were new; nil for a delta
	size  int                   // of msg, in protobuf's form

	mu    sync.Mutex // protects forms; held while one is made
	forms map[string][]byte
}

// IsKept reports whether the message shows part of a record that is kept. Others may have the same one: it must not be
// changed, and its forms are those of a message that is not replayed.
func (s *Shared) IsKept() bool { return s != nil && s.msg != nil }

// Size returns the size of a kept message in protobuf's form, in bytes, as if it were not replayed.
func (s *Shared) Size() int { return s.size }

// Form returns the wire form in a codec, which encode makes. It must not be changed. The form of a kept message is
// counted with its record, and made again if there is no room for it.
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
	if s.IsKept() && !s.entry.Grow(len(form)+formSize) {
		return form, nil
	}
	if s.forms == nil {
		s.forms = map[string][]byte{}
	}
	s.forms[codec] = form
	return form, nil
}

const (
	// formSize is about what a form takes beside its bytes.
	formSize = 128
	// messageSize is about what a message and its Shared take beside its texts, rather more.
	messageSize = 1 << 10
)

// What is kept of a record is kept under its slot, and a call under another one where it is a request.
const requestKey = position.Deltas

// kept sends the message of the current record that render returns, unless the client has it. It is the same for
// all who read the log, but for whether it is repeated to them; key tells it from others of the record.
func (v *view) kept(slot, key int, render func() *agentdv1.RunResponse) {
	pos := position.Of(v.rec.Seq, slot)
	if pos <= v.at {
		return
	}
	if v.entry == nil || v.turnID != v.rec.TurnID {
		v.send(slot, v.turnID, render())
		return
	}
	s, _ := v.entry.Made(key, func() (any, int) {
		s := &Shared{entry: v.entry, msg: render()}
		v.place(s.msg, pos, v.turnID)
		s.size = proto.Size(s.msg)
		return s, messageSize + s.size
	}).(*Shared)
	v.at = pos
	v.out = append(v.out, &agentdv1.RunResponse{
		Seq: pos, TurnId: v.turnID, Time: s.msg.GetTime(), Replayed: v.replayed, Lineage: s.msg.GetLineage(),
		Response: s.msg.GetResponse(),
	})
	v.shared = append(v.shared, sharedMessage{len(v.out) - 1, s})
}

// sharedMessage is a message that other watchers receive too.
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
