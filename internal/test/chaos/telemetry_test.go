package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlpcommon "go.opentelemetry.io/proto/otlp/common/v1"
	otlptrace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/internal/test/heldaddr"
	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session/record"
)

// collectorKey is what the daemon proves to the collector with who it is.
const collectorKey = "chaos-collector-key"

// hang is how long the collector keeps silent at most.
const hang = 2 * time.Second

// placed is the id of a span.
type placed struct {
	trace trace.TraceID
	span  trace.SpanID
}

// watched is what the daemons tell of themselves: spans and metrics to a collector, which is at times not there, and
// metrics on an address of their own.
type watched struct {
	*httptest.Server
	admin string
	calm  atomic.Bool // the collector is there
	keys  func() []string

	mu       sync.Mutex // protects the fields below
	spans    map[placed]*otlptrace.Span
	metrics  map[string]bool
	kinds    map[string]int // spans that were checked, by kind
	twice    int            // spans that came again
	away     map[string]int // what the collector did in place of its work
	scrapes  int            // of the other address
	problems []string
}

func newWatched(t *testing.T) *watched {
	w := &watched{
		admin: heldaddr.New(t), keys: func() []string { return nil },
		spans: map[placed]*otlptrace.Span{}, metrics: map[string]bool{}, kinds: map[string]int{}, away: map[string]int{},
	}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

// env has a daemon tell.
func (w *watched) env() []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + w.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=" + collectorKey,
		"OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_METRIC_EXPORT_INTERVAL=1000", "AGENTD_ADMIN_ADDR=" + w.admin,
	}
}

func (w *watched) faultf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) < 100 {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

func (w *watched) takeProblems() []string {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.problems
	w.problems = nil
	return out
}

// misbehave returns what the collector does in place of its work, or after it; "" for nothing.
func (w *watched) misbehave() string {
	what := ""
	if n := rand.IntN(100); !w.calm.Load() && n < 25 {
		what = []string{"refuses", "refuses after", "hangs", "cuts", "cuts after"}[n%5]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if what != "" {
		w.away[what]++
	}
	return what
}

// ServeHTTP is the collector.
func (w *watched) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the daemon was killed
	}
	what := w.misbehave()
	switch what {
	case "hangs":
		for until := time.Now().Add(hang); !w.calm.Load() && time.Now().Before(until) && rest(r.Context(), hang/40); {
		}
		fallthrough
	case "refuses":
		http.Error(out, "no room", http.StatusServiceUnavailable)
		return
	case "cuts":
		panic(http.ErrAbortHandler)
	}
	if got := r.Header.Get("Authorization"); got != collectorKey {
		w.faultf("the collector was sent %q", got)
	}
	w.silent(r.URL.Path, body)
	switch r.URL.Path {
	case "/v1/traces":
		var req collectortrace.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &req); err == nil {
			w.take(&req)
		}
	case "/v1/metrics":
		var req collectormetrics.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &req); err == nil {
			w.measure(&req)
		}
	default:
		err = fmt.Errorf("no such path")
	}
	if err != nil {
		w.faultf("%s: %v", r.URL.Path, err)
	}
	switch what {
	case "refuses after":
		out.Header().Set("Retry-After", "0")
		http.Error(out, "no room", http.StatusServiceUnavailable)
	case "cuts after":
		panic(http.ErrAbortHandler)
	}
}

// silent looks for what no operator is to read: keys, and what is said.
func (w *watched) silent(where string, body []byte) {
	for _, key := range append(w.keys(), keyPrefix, collectorKey) {
		if key != "" && bytes.Contains(body, []byte(key)) {
			w.faultf("%s has a key, %.9s…", where, key)
		}
	}
	if said := stepMark.Find(body); said != nil {
		w.faultf("%s has what a model has said, %s", where, said)
	}
}

func (w *watched) take(req *collectortrace.ExportTraceServiceRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				at := placed{trace.TraceID(s.GetTraceId()), trace.SpanID(s.GetSpanId())}
				was := w.spans[at]
				if was == nil {
					w.spans[at] = s
					continue
				}
				w.twice++
				if !proto.Equal(was, s) {
					w.problems = append(w.problems, fmt.Sprintf("a span was %v, and is %v", was, s))
				}
			}
		}
	}
}

func (w *watched) measure(req *collectormetrics.ExportMetricsServiceRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rm := range req.GetResourceMetrics() {
		for _, sm := range rm.GetScopeMetrics() {
			for _, m := range sm.GetMetrics() {
				w.metrics[m.GetName()] = true
			}
		}
	}
}

// scrape reads the metrics of the daemons as Prometheus does, now and then; of one that is down there are none.
func (w *watched) scrape(ctx context.Context) {
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	for rest(ctx, 100*time.Millisecond) {
		once, cancel := context.WithTimeout(ctx, hang)
		req, err := http.NewRequestWithContext(once, http.MethodGet, "http://"+w.admin+"/metrics", nil)
		if err != nil {
			w.faultf("scrape: %v", err)
		} else if resp, err := tr.RoundTrip(req); err == nil {
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err == nil {
				w.silent("/metrics", body)
				if !bytes.Contains(body, []byte("\nagentd_build_info{")) || resp.StatusCode != http.StatusOK {
					w.faultf("/metrics is %s: %.200s", resp.Status, body)
				}
				w.mu.Lock()
				w.scrapes++
				w.mu.Unlock()
			}
		}
		cancel()
	}
}

// wanted is a span as a log has it.
type wanted struct {
	name         string
	began, ended time.Time
	above        trace.SpanID // of a turn: the call that has started it
	resumed      int
	status       string // of a turn
	outcome      string // of a tool call
}

// spansOf returns the spans of turns, agents and tool calls that a log has, and the turns by their traces.
func spansOf(records []record.Record) (spans map[placed]*wanted, turns map[trace.TraceID]map[string]bool, err error) {
	spans, turns = map[placed]*wanted{}, map[trace.TraceID]map[string]bool{}
	var at tracecontext.Context
	var turn *wanted
	open, starts := map[string]*wanted{}, map[string]int{} // agents that work, and calls without a result
	add := func(key string, o *wanted, below ...string) {
		spans[placed{at.SpanContext().TraceID(), at.SpanID(below...)}] = o
		open[key] = o
	}
	change := func(id string, c record.AgentChange, when time.Time) {
		key := strings.Join(c.Path, "\x00")
		if o := open["agent\x00"+key]; c.Ended != "" {
			if o != nil {
				o.ended = when
				delete(open, "agent\x00"+key)
			}
			return
		}
		starts[key]++
		add("agent\x00"+key, &wanted{name: "invoke_agent " + c.Path[len(c.Path)-1], began: when},
			id, fmt.Sprintf("agent\x00%s\x00%d", key, starts[key]))
	}
	for _, rec := range records {
		fact, err := rec.Decode(engine.Decode)
		if err != nil {
			return nil, nil, err
		}
		for _, c := range record.CallsOf(fact) {
			add(c.ID, &wanted{name: "execute_tool " + c.Name, began: rec.Time, outcome: "none"}, rec.TurnID, c.ID)
		}
		switch f := fact.(type) {
		case *record.TurnStarted:
			at, open, starts = f.Trace, map[string]*wanted{}, map[string]int{}
			var tree struct{ Name string }
			if err := json.Unmarshal(f.Agent, &tree); err != nil {
				return nil, nil, err
			}
			turn = &wanted{name: "turn " + tree.Name, began: rec.Time, above: at.SpanContext().SpanID()}
			add("turn", turn, rec.TurnID)
			id := at.SpanContext().TraceID()
			if turns[id] == nil {
				turns[id] = map[string]bool{}
			}
			turns[id][rec.TurnID] = true
			if f.Alone != nil {
				change(rec.TurnID, *f.Alone, rec.Time)
			}
		case *record.TurnResumed:
			turn.resumed++
		case *record.AgentsChanged:
			for _, c := range f.Changes {
				change(rec.TurnID, c, rec.Time)
			}
		case *record.ToolResult:
			if o := open[f.CallID]; o != nil {
				o.ended, o.outcome = rec.Time, string(f.Outcome)
				delete(open, f.CallID)
			}
		case *record.TurnEnded:
			turn.status = "succeeded"
			if f.Code != 0 {
				turn.status = "failed"
			} else if !f.Completed {
				turn.status = "canceled"
			}
			for _, o := range open {
				o.ended = rec.Time
			}
		}
	}
	return spans, turns, nil
}

// check holds the spans that have come against the logs of their sessions, and forgets them. Nothing may run.
func (w *watched) check(logOf func(session string) []record.Record) {
	if w == nil {
		return
	}
	w.mu.Lock()
	spans := w.spans
	w.spans = map[placed]*otlptrace.Span{}
	w.mu.Unlock()
	type log struct {
		spans map[placed]*wanted
		turns map[trace.TraceID]map[string]bool
	}
	logs := map[string]log{}
	for at, s := range spans {
		of := map[string]string{}
		for _, a := range s.GetAttributes() {
			of[a.GetKey()] = a.GetValue().GetStringValue()
		}
		kind, _, _ := strings.Cut(s.GetName(), " ")
		if strings.HasPrefix(s.GetName(), "agentd.v1.") || kind == "other" { // a call, which may start a turn or not
			kind = "call"
			for name := range of {
				if !strings.HasPrefix(name, "rpc.") && name != "error.type" {
					w.faultf("the span of a call has %s: %v", name, s)
				}
			}
			w.kinds[kind]++
			continue
		}
		session := of["gen_ai.conversation.id"]
		l, known := logs[session]
		if !known && session != "" {
			var err error
			if l.spans, l.turns, err = spansOf(logOf(session)); err != nil {
				w.faultf("session %s: %v", session, err)
			}
			logs[session] = l
		}
		if !l.turns[at.trace][of["agentd.turn.id"]] {
			w.faultf("a span belongs to no turn of its session: %v", s)
			continue
		}
		w.kinds[kind]++
		want := l.spans[at]
		if kind == "chat" { // a try of a model call, of which the log has the outcome alone
			if above := l.spans[placed{at.trace, trace.SpanID(s.GetParentSpanId())}]; want != nil || above == nil {
				w.faultf("a try of a model is below nothing: %v", s)
			}
			continue
		}
		var got wanted
		if want != nil {
			got = wanted{
				name: s.GetName(), began: time.Unix(0, int64(s.GetStartTimeUnixNano())).UTC(), ended: time.Unix(0, int64(s.GetEndTimeUnixNano())).UTC(),
				resumed: len(s.GetEvents()), status: of["agentd.turn.status"], outcome: of["agentd.tool.outcome"], above: want.above,
			}
			if kind == "turn" {
				got.above = trace.SpanID(s.GetParentSpanId())
			} else if l.spans[placed{at.trace, trace.SpanID(s.GetParentSpanId())}] == nil {
				want = nil
			}
		}
		if want == nil || got != *want {
			w.faultf("a span is not that of the log, %+v: %v", want, s)
		}
	}
}

// whole says what of telemetry was not seen at all.
func (w *watched) whole(long bool) (missing []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds, metrics := []string{"turn", "chat", "call"}, []string{"agentd_build_info"}
	if long { // a short run has few turns
		kinds = append(kinds, "invoke_agent", "execute_tool")
		metrics = append(metrics, "agentd_turns_ended_total", "gen_ai.client.operation.duration")
	}
	for _, kind := range kinds {
		if w.kinds[kind] == 0 {
			missing = append(missing, "no span of a "+kind+" came")
		}
	}
	for _, name := range metrics {
		if !w.metrics[name] {
			missing = append(missing, "no metric "+name+" came")
		}
	}
	if w.scrapes == 0 {
		missing = append(missing, "no metrics were scraped")
	}
	return missing
}

// String says what has come.
func (w *watched) String() string {
	if w == nil {
		return "no spans"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	away := 0
	for _, n := range w.away {
		away += n
	}
	return fmt.Sprintf("spans checked: %v, %d came again; the collector was not there %d times: %v; %d scrapes", w.kinds, w.twice, away, w.away, w.scrapes)
}

func attributes(pairs ...string) (out []*otlpcommon.KeyValue) {
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, &otlpcommon.KeyValue{Key: pair[0], Value: &otlpcommon.AnyValue{Value: &otlpcommon.AnyValue_StringValue{StringValue: pair[1]}}})
	}
	return out
}

// TestSpanChecker: what check looks for it finds.
func TestSpanChecker(t *testing.T) {
	began := time.Unix(1_700_000_000, 0).UTC()
	at := tracecontext.Context{Parent: "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01", Spans: true}
	fact := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	log := []record.Record{
		{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Time: began, Data: fact(record.TurnStarted{Agent: []byte(`{"name":"a"}`), Trace: at})},
		{Seq: 2, TurnID: "t", Kind: record.KindTurnEnded, Time: began.Add(time.Second), Data: fact(record.TurnEnded{Completed: true})},
	}
	span := func(change func(s *otlptrace.Span)) *otlptrace.Span {
		id, above, in := at.SpanID("t"), at.SpanContext().SpanID(), at.SpanContext().TraceID()
		s := &otlptrace.Span{
			TraceId: in[:], SpanId: id[:], ParentSpanId: above[:], Name: "turn a",
			StartTimeUnixNano: uint64(began.UnixNano()), EndTimeUnixNano: uint64(began.Add(time.Second).UnixNano()),
			Attributes: attributes("gen_ai.conversation.id", "s", "agentd.turn.id", "t", "agentd.turn.status", "succeeded"),
		}
		change(s)
		return s
	}
	for name, tc := range map[string]struct {
		change func(s *otlptrace.Span)
		wrong  bool
	}{
		"right":        {change: func(*otlptrace.Span) {}},
		"other id":     {func(s *otlptrace.Span) { s.SpanId = []byte("12345678") }, true},
		"other trace":  {func(s *otlptrace.Span) { s.TraceId = []byte("1234567890123456") }, true},
		"other time":   {func(s *otlptrace.Span) { s.EndTimeUnixNano++ }, true},
		"other parent": {func(s *otlptrace.Span) { s.ParentSpanId = []byte("12345678") }, true},
		"other end": {func(s *otlptrace.Span) {
			s.Attributes = attributes("gen_ai.conversation.id", "s", "agentd.turn.id", "t", "agentd.turn.status", "failed")
		}, true},
		"no session":   {func(s *otlptrace.Span) { s.Attributes = nil }, true},
		"a resumption": {func(s *otlptrace.Span) { s.Events = []*otlptrace.Span_Event{{Name: "agentd.turn.resumed"}} }, true},
	} {
		w := &watched{spans: map[placed]*otlptrace.Span{}, kinds: map[string]int{}, keys: func() []string { return nil }}
		req := &collectortrace.ExportTraceServiceRequest{ResourceSpans: []*otlptrace.ResourceSpans{{ScopeSpans: []*otlptrace.ScopeSpans{{
			Spans: []*otlptrace.Span{span(tc.change), span(tc.change)},
		}}}}}
		w.take(req)
		w.check(func(string) []record.Record { return log })
		if problems := w.takeProblems(); (len(problems) > 0) != tc.wrong || w.twice != 1 {
			t.Errorf("%s: %q, %d came again", name, problems, w.twice)
		}
	}
	w := &watched{spans: map[placed]*otlptrace.Span{}, keys: func() []string { return []string{"agentd-key"} }}
	for i, text := range []string{"agentd-key", keyPrefix + "7", collectorKey, "<1001.2.a.3>", "nothing"} {
		w.silent("here", []byte("x"+text+"y"))
		if n := len(w.takeProblems()); (n > 0) != (i < 4) {
			t.Errorf("%q: %d problems", text, n)
		}
	}
	again := span(func(s *otlptrace.Span) { s.Name = "turn b" })
	w.take(&collectortrace.ExportTraceServiceRequest{ResourceSpans: []*otlptrace.ResourceSpans{{ScopeSpans: []*otlptrace.ScopeSpans{{
		Spans: []*otlptrace.Span{span(func(*otlptrace.Span) {}), again},
	}}}}})
	if !slices.ContainsFunc(w.takeProblems(), func(p string) bool { return strings.HasPrefix(p, "a span was ") }) {
		t.Error("a span that has changed is not found")
	}
}
