package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
)

// Recorder appends lines to a file. Its methods may be called from any goroutine.
//
// A call is written when it is over, by its own goroutine, in one write: lines stand
// in the order in which calls end. What cannot be written is left out: the call
// itself does not fail. The first time that happens is logged, and so is that the
// file is no longer where it was; the recorder still writes to it.
type Recorder struct {
	log  *slog.Logger
	path string
	info os.FileInfo // of the file

	mu     sync.Mutex // protects the fields below
	file   io.WriteCloser
	torn   bool // the file may end in the middle of a line
	failed bool // a failure has been logged
	gone   bool // that the file is not there has been logged
	closed bool
}

// Open appends to a file, which it makes, readable by its owner alone, if there
// is none. The caller closes the recorder when no call is under way any more.
func Open(path string, log *slog.Logger) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("record: %w", err), f.Close())
	}
	// An empty line does no harm: whoever was killed while writing left a part of
	// one.
	return &Recorder{log: log, path: path, info: info, file: f, torn: info.Mode().IsRegular() && info.Size() > 0}, nil
}

// Close closes the file. What is recorded afterwards is left out.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	return r.file.Close()
}

// Source is the model that is called.
type Source struct {
	// Provider is the provider's name, and Model the name that the agent has.
	Provider, Model string
	// Secrets are texts that no line may hold. Those of less than six bytes are not
	// looked for.
	Secrets []string
}

// Wrap returns llm with each call of it recorded. It goes around the retries, see
// modelcall.WithRetry: they are part of one call.
func (r *Recorder) Wrap(llm model.LLM, from Source) model.LLM {
	var pairs []string
	for _, s := range from.Secrets {
		if len(s) >= minSecret {
			pairs = append(pairs, s, hidden)
		}
	}
	return &recorded{r: r, llm: llm, from: from, hide: strings.NewReplacer(pairs...)}
}

// recorded is immutable.
type recorded struct {
	r    *Recorder
	llm  model.LLM
	from Source
	hide *strings.Replacer
}

// Generate implements model.LLM.
func (m *recorded) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	began, info := time.Now(), modelcall.From(ctx)
	line := &Line{
		Version: Version, Time: began.UTC(),
		Session: info.Session, Turn: info.Turn, Path: info.Path, MessageID: info.MessageID,
		Provider: m.from.Provider, Model: m.from.Model,
	}
	one := info
	one.OnRetry = func(f modelcall.FailedTry) error {
		line.Tries = append(line.Tries, Try{Try: f.Try, Wait: millis(f.Wait), Error: m.failure(f.Err)})
		if info.OnRetry == nil {
			return nil
		}
		return info.OnRetry(f)
	}
	var seen shown
	resp, err := m.llm.Generate(modelcall.With(ctx, one), req, func(d model.Delta) {
		seen.add(d)
		emit(d)
	})
	line.Duration = millis(time.Since(began))
	line, failed := m.complete(ctx, line, req, resp, err)
	if failed == nil && line.Error != nil {
		line.Shown = seen.lines(m.hide)
	}
	m.r.write(line, failed)
	return resp, err
}

// shown is what was shown of a response. Who makes the call bounds it.
type shown struct{ pieces []*piece }

// piece is text of one kind.
type piece struct {
	text    strings.Builder
	thought bool
}

func (s *shown) add(d model.Delta) {
	n := len(s.pieces)
	if n == 0 || s.pieces[n-1].thought != d.Thought {
		s.pieces, n = append(s.pieces, &piece{thought: d.Thought}), n+1
	}
	s.pieces[n-1].text.WriteString(d.Text)
}

func (s *shown) lines(hide *strings.Replacer) []Shown {
	var out []Shown
	for _, p := range s.pieces {
		out = append(out, Shown{Text: hide.Replace(p.text.String()), Thought: p.thought})
	}
	return out
}

// complete fills in what the call was about and how it ended.
func (m *recorded) complete(
	ctx context.Context, line *Line, req *model.Request, resp *model.Response, err error,
) (*Line, error) {
	asked, encErr := request(req, m.hide)
	if encErr != nil {
		return nil, encErr
	}
	line.Request = asked
	if err != nil || resp == nil {
		if line.Error = m.failure(err); ctx.Err() != nil {
			line.Error.Kind = Canceled
		}
		return line, nil
	}
	line.Served = m.hide.Replace(resp.Model)
	line.Response = &Response{Finish: m.hide.Replace(string(resp.FinishReason)), Usage: usageOf(resp.Usage),
		Provided: m.provided(resp.Provided)}
	if resp.Content == nil {
		return line, nil
	}
	data, encErr := rawjson.Marshal(resp.Content)
	if encErr != nil {
		return nil, encErr
	}
	v, encErr := jsondiff.Decode(data)
	if encErr != nil {
		return nil, encErr
	}
	line.Response.Content, encErr = rawjson.Marshal(clean(v, m.hide, whole))
	return line, encErr
}

// provided is what a provider has run as a line has it.
func (m *recorded) provided(p *model.Provided) *model.Provided {
	if p.Empty() {
		return nil
	}
	out := &model.Provided{Uses: slices.Clone(p.Uses), Citations: slices.Clone(p.Citations)}
	for i := range out.Uses {
		u := &out.Uses[i]
		for _, text := range []*string{&u.ID, &u.Name, &u.Input, &u.Output, &u.Error} {
			*text = m.hide.Replace(*text)
		}
	}
	for i := range out.Citations {
		c := &out.Citations[i]
		for _, text := range []*string{&c.URI, &c.Title, &c.Text} {
			*text = m.hide.Replace(*text)
		}
	}
	return out
}

// failure is an error as a line has it.
func (m *recorded) failure(err error) *Error {
	if err == nil {
		return &Error{Kind: Internal, Message: "neither a response nor an error"}
	}
	out := &Error{Kind: Internal, Message: m.hide.Replace(err.Error())}
	e, ok := errors.AsType[*model.Error](err)
	if ok {
		out.Kind, out.Provider, out.Status, out.Message = string(e.Kind), e.Provider, e.Status,
			m.hide.Replace(e.Message)
		out.RetryAfter = millis(e.RetryAfter)
		if modelcall.Unreported(err) {
			out.Kind = Canceled
		}
	}
	if took := modelcall.Took(err); len(took) > 0 && (!ok || e.Usage != nil) {
		u := usageOf(took[len(took)-1])
		out.Usage = &u
	}
	return out
}

// write appends a line, or logs why it cannot.
func (r *Recorder) write(line *Line, err error) {
	var data []byte
	if err == nil {
		data, err = rawjson.Marshal(line)
	}
	if err == nil && len(data) >= MaxLine {
		err = fmt.Errorf("the call takes %d bytes, at most %d are recorded", len(data), MaxLine)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.closed {
		err = os.ErrClosed
	}
	if err == nil {
		whole := make([]byte, 0, len(data)+2)
		if r.torn {
			whole = append(whole, '\n')
		}
		_, err = r.file.Write(append(append(whole, data...), '\n'))
		r.torn = err != nil
	}
	if now, gone := os.Stat(r.path); err == nil && !r.gone && (gone != nil || !os.SameFile(now, r.info)) {
		r.gone = true
		r.log.Error("the file of recorded model calls was removed or replaced: "+
			"what is recorded is not in it until the next start",
			slog.String("file", r.path))
	}
	if err != nil && !r.failed {
		r.failed = true
		r.log.Error("model calls are not recorded; the next such failures are not logged", slog.Any("error", err))
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
