package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/configfile"
)

// codedError is an error with its exit code. Without an error, the command has reported
// what was wrong.
type codedError struct {
	code int
	err  error
}

func (f *codedError) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *codedError) Unwrap() error { return f.err }

// usage is an error about the command line.
func usage(format string, args ...any) error {
	return &codedError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// report tells why a command has failed, and returns its exit code.
func (p *process) report(err error) int {
	if _, ok := errors.AsType[configfile.Problems](err); ok {
		fmt.Fprintln(p.stderr, cli.Clean(err.Error()))
		return exitUsage
	}
	code := exitError
	if f, ok := errors.AsType[*codedError](err); ok {
		code = f.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(p.stderr, "agentd:", text)
	}
	if e, ok := errors.AsType[*cli.Error](err); ok && e.Unreachable {
		fmt.Fprintln(p.stderr, "Start one with: agentd serve. "+
			"Or name another one with --url (or AGENTD_URL), or run without one: agentd run --local FILE PROMPT.")
	}
	return code
}

// context is the time until somebody interrupts. The caller ends it with stop.
func (p *process) context() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		select {
		case s := <-p.signals:
			cancel(fmt.Errorf("interrupted (%v)", s))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// notef tells a person what is no result.
func (p *process) notef(format string, args ...any) {
	fmt.Fprintln(p.stderr, "agentd:", cli.Clean(fmt.Sprintf(format, args...)))
}

// printJSON writes a value as a line of JSON.
func (p *process) printJSON(v any) error {
	out := json.NewEncoder(p.stdout)
	out.SetEscapeHTML(false)
	return out.Encode(v)
}

// colors reports whether what goes to a terminal may be colored; see no-color.org.
func (p *process) colors() bool { return p.env["NO_COLOR"] == "" && p.env["TERM"] != "dumb" }

// daemonFlags are the flags of commands that talk to a daemon.
type daemonFlags struct {
	URL        string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Where the daemon is."`
	APIKeyFile string `name:"api-key-file" placeholder:"FILE" help:"${api_key_file}"`
	HTTP1      bool   `name:"http1" help:"Use requests that need no HTTP/2, for gateways that speak HTTP/1.1 alone."`
	JSON       bool   `name:"json" noenv:"" help:"Write JSON, one object a line, as when the output is no terminal."`
}

// talk is a command's talk with a daemon.
type talk struct {
	*cli.Printer
	conn *cli.Conn
	ctx  context.Context //nolint:containedctx // the command's own
}

// talk has f talk to the daemon.
func (d *daemonFlags) talk(p *process, f func(talk) error, opts ...client.Option) error {
	conn, err := cli.Dial(d.URL, append(d.options(p), opts...)...)
	if err != nil {
		return usage("--url: %w", err)
	}
	defer conn.Close()
	ctx, stop := p.context()
	defer stop()
	return f(talk{Printer: &cli.Printer{Out: p.stdout, JSON: d.json(p), Now: time.Now()}, conn: conn, ctx: ctx})
}

// options are those of the client.
func (d *daemonFlags) options(p *process) (opts []client.Option) {
	if d.HTTP1 {
		opts = append(opts, client.WithHTTP1())
	}
	switch key := p.getenv("AGENTD_API_KEY"); {
	case d.APIKeyFile != "":
		opts = append(opts, client.WithTokenSource(fileToken(d.APIKeyFile)))
	case key != "":
		opts = append(opts, client.WithAPIKey(key))
	}
	return opts
}

// maxToken bounds the file of a token, in bytes.
const maxToken = 16 << 10

// fileToken reads the token from a file for each request: whoever renews it writes the file again.
func fileToken(name string) client.TokenSource {
	return func(context.Context) (_ string, err error) {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
		token := strings.TrimSpace(string(text))
		switch {
		case err != nil:
			return "", err
		case len(text) > maxToken:
			return "", fmt.Errorf("%s has more than %d bytes, it is no token", name, maxToken)
		case token == "":
			return "", fmt.Errorf("%s is empty: it has to hold an API key or a token", name)
		}
		return token, nil
	}
}

// json reports whether programs read the output.
func (d *daemonFlags) json(p *process) bool { return d.JSON || !p.tty.stdout }

// get makes a request of a command.
func get[T any](t talk, request func(context.Context) (T, error)) (T, error) {
	return cli.Call(t.ctx, t.conn, request)
}

// list returns at most limit things of a list.
func list[T interface{ Proto() M }, M any](
	t talk, limit int, things func(context.Context) iter.Seq2[T, error],
) ([]M, error) {
	return cli.List(t.ctx, t.conn, limit, things)
}

// pageSize is how many things of a list are asked for at a time.
func pageSize(limit int) int { return max(min(limit, 100), 0) }

// state reads key=value pairs: a value that is JSON counts as such, any other one
// as text.
func state(pairs map[string]string) (map[string]any, error) {
	out := make(map[string]any, len(pairs))
	for key, text := range pairs {
		if key == "" {
			return nil, usage("--state: %q has no key", "="+text)
		}
		if out[key] = text; json.Valid([]byte(text)) {
			out[key] = json.RawMessage(text)
		}
	}
	return out, nil
}

// isFile reports whether a name is that of a file that may hold an agent.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.IsDir()
}
