package cli

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
)

const (
	// callTimeout bounds a request that is no stream: a cancel waits until nothing of the
	// turn runs.
	callTimeout = 2 * time.Minute
	// maxMessage bounds a message in either direction, in bytes. The daemon's own limits
	// are lower.
	maxMessage = 128 << 20
)

// Conn is a client of one daemon. It holds no goroutine between calls; its methods may be
// called from any goroutine.
type Conn struct {
	*client.Client
	url string
}

// Dial names the daemon at a URL such as http://127.0.0.1:8080. It does not connect.
func Dial(address string, opts ...client.Option) (*Conn, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the daemon's URL has to be http://host:port or https://host, got %q", address)
	}
	// The daemon judges how large a result may be.
	opts = append(opts, client.WithMaxMessageBytes(maxMessage), client.WithMaxResultBytes(maxMessage))
	return &Conn{Client: client.New(strings.TrimRight(u.String(), "/"), opts...), url: u.Redacted()}, nil
}

// Close closes the connections that are idle.
func (c *Conn) Close() { c.CloseIdleConnections() }

// Call makes a request. Its errors are *Error.
func Call[T any](ctx context.Context, c *Conn, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, c.silent())
	defer cancel()
	out, err := request(ctx)
	if err != nil {
		return out, c.failed(ctx, err)
	}
	return out, nil
}

// List returns the messages of at most limit things of a list. Its errors are *Error.
func List[T interface{ Proto() M }, M any](
	ctx context.Context, c *Conn, limit int, list func(context.Context) iter.Seq2[T, error],
) ([]M, error) {
	var out []M
	err := each(ctx, c, limit, list, func(item T) error {
		out = append(out, item.Proto())
		return nil
	})
	return out, err
}

// each calls do for at most limit things of a list, and returns the error of either. The
// daemon may take callTimeout for each page.
func each[T any](
	ctx context.Context, c *Conn, limit int, list func(context.Context) iter.Seq2[T, error], do func(T) error,
) error {
	if limit <= 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(callTimeout, func() { cancel(c.silent()) })
	defer late.Stop()
	for item, err := range list(ctx) {
		if err != nil {
			return c.failed(ctx, err)
		}
		late.Stop()
		if err := do(item); err != nil {
			return err
		}
		if limit--; limit == 0 {
			return nil
		}
		late.Reset(callTimeout)
	}
	return nil
}

// silent is why a request ends to which nothing comes back.
func (c *Conn) silent() error {
	return fmt.Errorf("%s has not responded within %v", c.url, callTimeout)
}

// failed returns why a request failed: the end of its context counts before the error.
func (c *Conn) failed(ctx context.Context, err error) *Error {
	if cause := context.Cause(ctx); cause != nil {
		return &Error{Message: cause.Error(), Err: cause}
	}
	return c.explain(err)
}
