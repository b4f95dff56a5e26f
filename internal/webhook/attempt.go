package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/store"
)

const (
	// replyBytes is how much of a response is read.
	replyBytes = 64 << 10
	// errorBytes bounds the text of an error.
	errorBytes = 300
)

// tried is the outcome of an attempt.
type tried struct {
	err     error // nil: it was received
	outcome string
	after   time.Duration // what the receiver asks to wait
	over    bool          // the receiver is gone for good
	dropped bool          // there is nothing to tell any more: the session is gone, or the hook is not told of it
	unread  bool          // the session could not be read, so nobody was asked
}

// attempt sends a notice once.
func (s *Sender) attempt(ctx context.Context, h *Hook, d *delivery) tried {
	msg, err := s.compose(ctx, h, d)
	switch {
	case errors.Is(err, store.ErrNoSession), err == nil && msg == nil:
		return tried{dropped: true}
	case err != nil:
		return tried{err: err, unread: true}
	}
	body, err := json.Marshal(msg)
	if err != nil {
		return tried{err: err, outcome: "failed"}
	}
	return s.post(ctx, h, d.ID, body)
}

// post makes a request.
func (s *Sender) post(ctx context.Context, h *Hook, id string, body []byte) tried {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	ctx = context.WithValue(ctx, allowedKey{}, h.Allow)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(h.URL), bytes.NewReader(body))
	if err != nil {
		return tried{err: errors.New("the URL of the hook is none"), outcome: "failed"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.cfg.Agent)
	sign(req.Header, h.Keys, id, time.Now(), body)
	resp, err := s.client.Do(req)
	if err != nil {
		return failed(ctx, err, h.Timeout)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, replyBytes) // whatever it says, its status counts
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return tried{}
	}
	out := tried{
		err:     fmt.Errorf("it responded %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)),
		outcome: strconv.Itoa(resp.StatusCode), over: resp.StatusCode == http.StatusGone,
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		out.after = min(time.Duration(seconds)*time.Second, longestWait)
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		out.err = fmt.Errorf("%w: redirects are not followed", out.err)
	}
	return out
}

// failed is the outcome of a request without a response. The URL may hold a secret, so no text has it.
func failed(ctx context.Context, err error, timeout time.Duration) tried {
	if e, is := errors.AsType[*url.Error](err); is {
		err = e.Err
	}
	if refused, is := errors.AsType[*addressError](err); is {
		return tried{err: refused, outcome: "refused"}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return tried{err: fmt.Errorf("it did not respond within %v", timeout), outcome: "timeout"}
	}
	text := strings.ToValidUTF8(err.Error(), "")
	return tried{err: errors.New(text[:min(len(text), errorBytes)]), outcome: "failed"}
}
