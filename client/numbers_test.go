package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// number is what an option means when it is not given, 0, and below 0: a number (times
// in milliseconds), or "none" for no bound, "refused" for an INVALID_REQUEST before
// anything is sent, "over" for a time that has passed. testdata/numbers.json has one for
// each option, and the tests of the TypeScript client read it too.
type number struct {
	Go, TypeScript        string
	Unset, Zero, Negative any
}

func readNumbers(t *testing.T) (numbers []number) {
	t.Helper()
	text, err := os.ReadFile("testdata/numbers.json")
	if err == nil {
		err = json.Unmarshal(text, &numbers)
	}
	if err != nil || len(numbers) == 0 {
		t.Fatalf("%d options: %v", len(numbers), err)
	}
	return numbers
}

// sent keeps the last request, to which it sends no reply.
type sent struct{ body []byte }

func (s *sent) Do(req *http.Request) (*http.Response, error) {
	s.body, _ = io.ReadAll(req.Body)
	return nil, errors.New("nobody is there")
}

// read returns a field of the last request.
func read[T any, M interface {
	*T
	proto.Message
}](t *testing.T, s *sent, field func(M) *int64) any {
	t.Helper()
	m := M(new(T))
	if s.body == nil {
		t.Fatal("nothing was sent")
	}
	if err := proto.Unmarshal(s.body, m); err != nil {
		t.Fatal(err)
	}
	if v := field(m); v != nil {
		return *v
	}
	return "none"
}

// meanings says what a number of an option means, nil is not given. Amounts of a second or
// more are in milliseconds, as times are.
var meanings = map[string]func(t *testing.T, n *int64) (any, error){
	"WithToolTimeout": func(t *testing.T, n *int64) (any, error) {
		rc, err := configured(t, n, func(n int64) RunOption { return WithToolTimeout(ms(n)) })
		return bound(rc.toolTimeout), err
	},
	"ToolTimeout": func(_ *testing.T, n *int64) (any, error) {
		var opts []ToolOption
		if n != nil {
			opts = append(opts, ToolTimeout(ms(*n)))
		}
		tools := NewToolSet()
		err := AddTool(tools, "t", "d", func(context.Context, struct{}) (string, error) { return "", nil }, opts...)
		if err != nil {
			return nil, err
		}
		return bound(tools.byName["t"].timeout), nil
	},
	"WithConcurrency": func(t *testing.T, n *int64) (any, error) {
		rc, err := configured(t, n, func(n int64) RunOption { return WithConcurrency(int(n)) })
		return int64(rc.concurrency), err
	},
	"WithMaxResultBytes": func(_ *testing.T, n *int64) (any, error) {
		c, err := made(n, func(n int64) Option { return WithMaxResultBytes(int(n)) })
		return int64(c.maxResult), err
	},
	"WithMaxMessageBytes": func(_ *testing.T, n *int64) (any, error) {
		c, err := made(n, func(n int64) Option { return WithMaxMessageBytes(int(n)) })
		return int64(c.maxMessage), err
	},
	"WithOnDisconnect": func(t *testing.T, n *int64) (any, error) {
		rc, err := configured(t, n, func(n int64) RunOption { return WithOnDisconnect(OnDisconnectCancel, ms(n)) })
		return rc.grace.Milliseconds(), err
	},
	"WithAfterSeq": func(_ *testing.T, n *int64) (any, error) {
		c := New("http://unused")
		rc, err := c.configure(useAttach, func(rc *runConfig) {
			if n != nil {
				WithAfterSeq(*n).applyAttach(rc)
			}
		})
		if err != nil || rc.after == nil {
			return "none", err
		}
		return *rc.after, nil
	},
	"ForkAt.ThroughSeq": func(t *testing.T, n *int64) (any, error) {
		s := &sent{}
		_, err := New("http://unused", WithHTTPClient(s)).Session("s").Fork(t.Context(), ForkAt{ThroughSeq: n})
		if errors.Is(err, ErrInvalidRequest) {
			return nil, err
		}
		return read(t, s, func(m *agentdv1.ForkSessionRequest) *int64 { return m.ThroughSeq }), nil
	},
	"Budget.ModelCalls": func(t *testing.T, n *int64) (any, error) {
		return spending(t, n, func(n int64) Budget { return Budget{ModelCalls: n} }, (*agentdv1.Budget).GetModelCalls)
	},
	"Budget.Tokens": func(t *testing.T, n *int64) (any, error) {
		return spending(t, n, func(n int64) Budget { return Budget{Tokens: n} }, (*agentdv1.Budget).GetTokens)
	},
	"Budget.CostUSD": func(t *testing.T, n *int64) (any, error) {
		return spending(t, n, func(n int64) Budget { return Budget{CostUSD: float64(n)} },
			func(b *agentdv1.Budget) int64 { return int64(b.GetCostUsd()) })
	},
	"Budget.WallTime": func(t *testing.T, n *int64) (any, error) {
		return spending(t, n, func(n int64) Budget { return Budget{WallTime: ms(n)} },
			func(b *agentdv1.Budget) int64 { return b.GetWallTime().AsDuration().Milliseconds() })
	},
	"ReconnectPolicy.MaxElapsed": func(_ *testing.T, n *int64) (any, error) {
		c, err := made(n, func(n int64) Option { return WithReconnect(ReconnectPolicy{MaxElapsed: ms(n)}) })
		return c.reconnect.MaxElapsed.Milliseconds(), err
	},
	"ReconnectPolicy.Base": func(_ *testing.T, n *int64) (any, error) {
		c, err := made(n, func(n int64) Option { return WithReconnect(ReconnectPolicy{Base: ms(n)}) })
		return c.reconnect.Base.Milliseconds(), err
	},
	"ReconnectPolicy.Cap": func(_ *testing.T, n *int64) (any, error) {
		c, err := made(n, func(n int64) Option { return WithReconnect(ReconnectPolicy{Cap: ms(n)}) })
		return c.reconnect.Cap.Milliseconds(), err
	},
	"PageSize": func(t *testing.T, n *int64) (any, error) {
		s := &sent{}
		filter := TurnFilter{}
		if n != nil {
			filter.PageSize = int(*n)
		}
		for _, err := range New("http://unused", WithHTTPClient(s)).Turns(t.Context(), filter) {
			if errors.Is(err, ErrInvalidRequest) {
				return nil, err
			}
		}
		return read(t, s, func(m *agentdv1.ListTurnsRequest) *int64 { return new(int64(m.GetPageSize())) }), nil
	},
	// A silent connection is dead after two intervals behind a heartbeat.
	"WithHeartbeatInterval": func(_ *testing.T, n *int64) (any, error) {
		c, err := made(n, func(n int64) Option { return WithHeartbeatInterval(ms(n)) })
		return bound((silentIntervals + 1) * c.heartbeat), err
	},
	"WithGrace": func(_ *testing.T, n *int64) (any, error) {
		c, err := made(n, func(n int64) Option { return WithGrace(ms(n)) })
		return c.grace.Milliseconds(), err
	},
	"WithTimeout": func(t *testing.T, n *int64) (any, error) {
		rc, err := configured(t, n, func(n int64) RunOption { return WithTimeout(ms(n)) })
		ctx, cancel := rc.context(t.Context())
		defer cancel()
		if ctx.Err() != nil {
			return "over", err
		}
		return bound(rc.timeout), err
	},
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// bound is a time of which 0 is none.
func bound(d time.Duration) any {
	if d == 0 {
		return "none"
	}
	return d.Milliseconds()
}

func configured(t *testing.T, n *int64, option func(int64) RunOption) (*runConfig, error) {
	t.Helper()
	rc, err := New("http://unused").configure(useRun, func(rc *runConfig) {
		if n != nil {
			option(*n).applyRun(rc)
		}
	})
	if err != nil {
		return &runConfig{}, err
	}
	return rc, nil
}

func made(n *int64, option func(int64) Option) (config, error) {
	var opts []Option
	if n != nil {
		opts = append(opts, option(*n))
	}
	c := New("http://unused", opts...)
	return c.cfg, c.cfg.err
}

func spending(t *testing.T, n *int64, of func(int64) Budget, field func(*agentdv1.Budget) int64) (any, error) {
	t.Helper()
	rc, err := configured(t, n, func(n int64) RunOption { return WithBudget(of(n)) })
	if v := field(rc.request("p").GetBudget()); v != 0 {
		return v, err
	}
	return "none", err
}

// What is not given, 0 and below 0 mean what the table says, as in the TypeScript
// client.
func TestNumbers(t *testing.T) {
	seen := 0
	for _, want := range readNumbers(t) {
		if want.Go == "" {
			continue
		}
		seen++
		t.Run(want.Go, func(t *testing.T) {
			of := meanings[want.Go]
			if of == nil {
				t.Fatal("nothing says what it means")
			}
			if got, err := of(t, new(int64(777))); err != nil || got != int64(777) && got != int64(3*777) {
				t.Fatalf("777 means %v, %v", got, err)
			}
			for _, c := range []struct {
				name string
				n    *int64
				want any
			}{{"not given", nil, want.Unset}, {"0", new(int64(0)), want.Zero}, {"-1", new(int64(-1)), want.Negative}} {
				got, err := of(t, c.n)
				switch failure, isError := errors.AsType[*Error](err); {
				case c.want == "refused":
					if !isError || failure.Code != ErrInvalidRequest || !strings.Contains(failure.Message, lastName(want.Go)) {
						t.Errorf("%s: got %v, %v, want it refused by its name", c.name, got, err)
					}
				case err != nil:
					t.Errorf("%s: %v", c.name, err)
				default:
					if n, isNumber := got.(int64); isNumber {
						got = float64(n)
					}
					if got != c.want {
						t.Errorf("%s means %v, want %v", c.name, got, c.want)
					}
				}
			}
		})
	}
	if seen != len(meanings) {
		t.Errorf("%d options of the table are Go's, of %d that this test knows", seen, len(meanings))
	}
}

// lastName is what a refusal says of an option.
func lastName(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// docs/go.md says the same: each option is in one row, which says what is refused.
func TestNumbersDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("\n| Go | TypeScript | not given | 0 | below 0 |\n"))
	table, _, _ := strings.Cut(string(text), "\n\n")
	for _, n := range readNumbers(t) {
		rows := 0
		for line := range strings.Lines(table) {
			cells := strings.Split(line, " | ")
			if len(cells) != 5 || !names(cells[0], n.Go) || !names(cells[1], n.TypeScript) {
				continue
			}
			rows++
			for i, means := range []any{n.Unset, n.Zero, n.Negative} {
				if said, _, _ := strings.Cut(cells[2+i], " |"); (said == "refused") != (means == "refused") {
					t.Errorf("%s%s: docs/go.md says %q in column %d, it means %v", n.Go, n.TypeScript, said, 3+i, means)
				}
			}
		}
		if rows != 1 {
			t.Errorf("%d rows of docs/go.md are about %q and %q", rows, n.Go, n.TypeScript)
		}
	}
}

// names reports whether a cell has a name, or none if there is none.
func names(cell, name string) bool {
	if name == "" {
		return strings.HasPrefix(strings.TrimPrefix(cell, "| "), "none")
	}
	return strings.Contains(cell, "`"+name+"`")
}
