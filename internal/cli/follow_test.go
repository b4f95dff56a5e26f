package cli_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

type stream = func(*agentdv1.AttachRequest, func(...*agentdv1.RunResponse)) error

// follow ranges over a turn, and returns the places of what came.
func follow(ctx context.Context, c *cli.Conn, f cli.Following, opts ...client.AttachOption) (seqs []int64, err error) {
	for event, e := range c.Follow(ctx, f, opts...) {
		if e != nil {
			err = e
			continue
		}
		seqs = append(seqs, event.Seq)
	}
	return seqs, err
}

// A stream that breaks, is ended by the server, or says that it ends, continues
// behind the last event.
func TestFollowContinues(t *testing.T) {
	f := &fake{watch: []stream{
		func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(at(1, says(nil, "a")), heartbeat(), at(5, says(nil, "b")))
			return connect.NewError(connect.CodeUnavailable, errors.New("gone"))
		},
		func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(at(7, says(nil, "c")))
			return nil
		},
		func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(at(9, says(nil, "d")), fails(agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE, "stopping"))
			return nil
		},
		func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(at(10, fails(agentdv1.ErrorCode_ERROR_CODE_INTERNAL, "broken")), at(11, ends(false)), at(12, says(nil, "never")))
			return nil
		},
	}}
	c := dial(t, f)
	lost := 0
	x := client.WithTools(tools(t, map[string]toolcmd.Command{"x": {Args: []string{"cat"}}}))
	seqs, err := follow(t.Context(), c, cli.Following{Session: "s1", Turn: "t1", Lost: func(error) { lost++ }}, x)
	if err != nil || !slices.Equal(seqs, []int64{1, 5, 7, 9, 10, 11}) || lost != 3 {
		t.Errorf("got %v, %v, lost %d times", seqs, err, lost)
	}
	var after []int64
	for _, r := range f.watched {
		after = append(after, r.GetAfterSeq())
		if r.GetSessionId() != "s1" || r.GetTurnId() != "t1" || !slices.Equal(r.GetToolNames(), []string{"x"}) {
			t.Errorf("asked for %v", r)
		}
	}
	if !slices.Equal(after, []int64{0, 5, 7, 9}) {
		t.Errorf("went on behind %v", after)
	}
}

// What another stream would not change ends the following.
func TestFollowFails(t *testing.T) {
	for name, tc := range map[string]struct {
		serve stream
		want  string
		code  client.Code
	}{
		"refused": {func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(fails(agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, "session \x1b[31mx does not exist"))
			return nil
		}, "session [31mx does not exist (SESSION_NOT_FOUND)", client.ErrSessionNotFound},
		"another program": {func(*agentdv1.AttachRequest, func(...*agentdv1.RunResponse)) error {
			return connect.NewError(connect.CodeUnimplemented, errors.New("what?"))
		}, "it is no agentd, or an older one", client.ErrInvalidRequest},
		"said": {func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(fails(agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED, "too old"))
			return nil
		}, "too old (HISTORY_PURGED)", client.ErrHistoryPurged},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := follow(t.Context(), dial(t, &fake{watch: []stream{tc.serve}}), cli.Following{Session: "s1", Patient: true})
			e, ok := errors.AsType[*cli.Error](err)
			if !ok || !strings.Contains(e.Error(), tc.want) || e.Code != tc.code || e.Unreachable {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestFollowNobody(t *testing.T) {
	c, err := cli.Dial("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = follow(t.Context(), c, cli.Following{Session: "s1"})
	if e, ok := errors.AsType[*cli.Error](err); !ok || !e.Unreachable || !strings.Contains(e.Error(), "no agentd responds at http://127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	f := cli.Following{Session: "s1", Patient: true, Lost: func(error) { cancel(why) }}
	if _, err = follow(ctx, c, f); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestDial(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://a b"} {
		if _, err := cli.Dial(bad); err == nil || !strings.Contains(err.Error(), "http://host:port") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
