package managed

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/session/fault"
)

// maxFrame bounds one server-sent event, in bytes.
const maxFrame = 16 << 20

// stream reads server-sent events.
type stream struct {
	ctx   context.Context
	http  *remote.HTTP
	body  *remote.Watched
	lines *bufio.Reader
}

func newStream(ctx context.Context, h *remote.HTTP, body io.ReadCloser) *stream {
	w := remote.Watch(body)
	return &stream{ctx: ctx, http: h, body: w, lines: bufio.NewReaderSize(w, 64<<10)}
}

// Next implements remote.Stream.
func (s *stream) Next() (remote.Event, error) {
	for {
		data, err := s.frame()
		if err != nil {
			return remote.Event{}, err
		}
		if len(data) == 0 {
			continue
		}
		if ev, id := read(data); id != "" {
			return ev, nil
		}
	}
}

// frame returns the data of the next event; empty for a comment or an event without data.
func (s *stream) frame() ([]byte, error) {
	var data []byte
	for {
		line, err := s.line(maxFrame - len(data))
		if err != nil {
			return nil, err
		}
		switch {
		case line == "":
			return data, nil
		case strings.HasPrefix(line, "data:"):
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, strings.TrimPrefix(line[len("data:"):], " ")...)
		}
	}
}

// line reads a line without its end.
func (s *stream) line(most int) (string, error) {
	var b []byte
	for {
		part, err := s.lines.ReadSlice('\n')
		b = append(b, part...)
		switch {
		case len(b) > most:
			return "", &remote.Error{Code: fault.LimitExceeded, Message: "an event has more than 16 MiB"}
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return "", s.http.Broken(s.ctx, err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
}

// Close implements remote.Stream.
func (s *stream) Close() { _ = s.body.Close() }
