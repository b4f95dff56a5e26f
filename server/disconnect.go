package server

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// A client that is too old to know on_disconnect resets its stream to cancel its turn:
// by a `break` of its loop, or by a canceled context. A lost connection cancels
// nothing. HTTP/2 distinguishes the two, unless a proxy turns one into the other.

// The values of Config.OnDisconnect.
const (
	onDisconnectAuto     = "auto"
	onDisconnectContinue = "continue"
	onDisconnectCancel   = "cancel"
)

const (
	// firstNewField is the number from which on the protocol has grown since the
	// clients that cannot know on_disconnect.
	firstNewField = 10
	// resetReason is why a turn was canceled whose client has reset its stream.
	resetReason = "cancelled by the client, which reset its stream"
	// resetWait bounds the wait for the reason of a stream's end, which HTTP/2 knows by
	// then.
	resetWait = time.Second
	// codeCancel is CANCEL of RFC 9113, section 7.
	codeCancel = 8
	// errTextStreamClosed is net/http's error of a write to a stream that was reset. For a
	// lost connection the text is another one. net/http exports neither; a test checks the
	// text.
	errTextStreamClosed = "http2: stream closed"
)

// resetError takes net/http's error for a stream that was reset, which has these
// fields and is not exported.
type resetError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e resetError) Error() string { return fmt.Sprintf("the stream was reset with code %d", e.Code) }

// detach ends the client's part in the turn.
func (st *stream) detach() {
	switch {
	case st.observed != nil:
		st.observed.feed.close()
	case st.far.isAway():
		if st.cancelsByReset() {
			st.far.reset()
		}
		st.far.feed.close()
	case st.cancelsByReset():
		st.watch.CloseAndCancel(resetReason)
	default:
		st.watch.Close()
	}
}

// cancelsByReset reports whether the client canceled the turn by a reset. The reset of
// a stream that the server has ended, or is ending, means nothing.
func (st *stream) cancelsByReset() bool {
	return st.cancelsOnReset && st.gone && st.end == nil && st.errorCode == 0 &&
		st.srv.ended.Err() == nil && st.wasReset()
}

// wasReset reports whether the client reset the stream with CANCEL. It ends the
// receiver. After a client has closed its side, net/http keeps no code of its reset, so
// any reset counts.
func (st *stream) wasReset() bool {
	st.finish()
	st.t.boundRead(resetWait)
	<-st.receiverDone
	_, err := io.Copy(io.Discard, st.t.body.ReadCloser) // what had arrived, then why no more does
	if reset, ok := errors.AsType[resetError](err); ok {
		return reset.Code == codeCancel && reset.Cause == nil
	}
	if err != nil { // the connection is lost
		return false
	}
	st.t.out.more = false
	st.writing.Reset(resetWait)
	defer st.writing.Stop()
	for range 2 { // the first fails when it is flushed, the second returns that error
		beat := &agentdv1.RunResponse_HeartbeatResponse{}
		_ = st.bidi.Send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{Heartbeat: beat}})
	}
	return st.t.out.err != nil && st.t.out.err.Error() == errTextStreamClosed
}

// hasNewFields reports whether a message holds a field that the oldest clients do not
// know.
func hasNewFields(m protoreflect.Message) bool {
	if !strings.HasPrefix(string(m.Descriptor().FullName()), "agentd.") {
		return false // such as a Struct
	}
	found := false
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Number() >= firstNewField:
			found = true
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := 0; i < value.List().Len() && !found; i++ {
				found = hasNewFields(value.List().Get(i).Message())
			}
		default:
			found = hasNewFields(value.Message())
		}
		return !found
	})
	return found
}
