package daemon_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

var (
	probesSeed = flag.Uint64("probes.seed", 0, "seed of TestProbes; 0 is another one each time")
	probesEach = flag.Int("probes.each", 150, "how many requests each caller of TestProbes makes")
)

// probeScripts are what the turns of TestProbes do.
var probeScripts = map[string]string{
	"looks":   asks,
	"careful": "answers:\n  - {when: {step: 1}, calls: [{name: danger, args: {n: 1}}, {name: look, args: {}}]}\n  - {when: {}, text: done}",
	"curious": "answers:\n  - {when: {step: 1}, calls: [{name: ask_user, args: {question: why}}]}\n  - {when: {}, text: done}",
	"rounds":  "answers:\n  - {when: {}, text: again, calls: [{name: look, args: {}}]}",
}

// place are ids that belong together, by the names of the fields that hold them.
type place map[protoreflect.Name]string

// probes makes requests with names that callers have received, and with invented ones.
type probes struct {
	mu      sync.Mutex                         // protects known
	known   map[protoreflect.Name][]string     // by the name of a field
	seqs    []int64                            // protected by mu
	where   []place                            // protected by mu
	replies map[string]int                     // how often methods have said what; protected by mu
	all     protoreflect.MethodDescriptors     // of SessionService
	wires   map[string]caller                  // by name
	fault   func(format string, values ...any) // says what must not be
}

// learn keeps the ids, tokens and positions of a reply, and looks for faults in it.
func (p *probes) learn(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name := fd.Name()
		if name == "id" {
			name = protoreflect.Name(strings.ToLower(string(m.Descriptor().Name())) + "_id")
		}
		switch {
		case fd.IsMap():
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				p.learn(v.List().Get(i).Message())
			}
		case fd.IsList():
		case fd.Message() != nil:
			p.learn(v.Message())
		case fd.Kind() == protoreflect.EnumKind && fd.Enum().Name() == "ErrorCode":
			if v.Enum() == protoreflect.EnumNumber(agentdv1.ErrorCode_ERROR_CODE_INTERNAL) {
				p.fault("a fault of the server's: %v", m.Interface())
			}
		case fd.Kind() == protoreflect.StringKind && (strings.HasSuffix(string(name), "_id") || name == "next_page_token"):
			p.know(name, v.String())
		case fd.Kind() == protoreflect.Int64Kind && strings.HasSuffix(string(name), "seq"):
			p.mu.Lock()
			p.seqs = append(p.seqs, v.Int())
			p.mu.Unlock()
		}
		return true
	})
	if m.Descriptor().Name() == "Turn" {
		p.visit(m)
	}
	if e, said := m.Descriptor(), m.Descriptor().Fields().ByName("message"); e.Name() == "ErrorResponse" && m.Get(said).String() == "" {
		p.fault("an error without a message: %v", m.Interface())
	}
}

func (p *probes) know(name protoreflect.Name, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "next_page_token" {
		name = "page_token"
	}
	if !slices.Contains(p.known[name], value) {
		p.known[name] = append(p.known[name], value)
	}
}

// visit takes note of a turn and of what it waits for.
func (p *probes) visit(turn protoreflect.Message) {
	field := func(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
		return m.Get(m.Descriptor().Fields().ByName(name))
	}
	here := place{"session_id": field(turn, "session_id").String(), "turn_id": field(turn, "id").String()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.where = append(p.where, here)
	for of, ids := range map[protoreflect.Name][2]protoreflect.Name{
		"pending_tool_calls": {"tool_call_id", "tool_call_id"}, "pending_interactions": {"id", "interaction_id"},
	} {
		for i := range field(turn, of).List().Len() {
			there := maps.Clone(here)
			there[ids[1]] = field(field(turn, of).List().Get(i).Message(), ids[0]).String()
			p.where = append(p.where, there)
		}
	}
}

// count takes note of what a method has said.
func (p *probes) count(method protoreflect.MethodDescriptor, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies[fmt.Sprint(method.Name(), " ", what)]++
}

// prober is one that makes requests of its own chance.
type prober struct {
	*probes
	*rand.Rand
	at place // what the next request is about
}

func (p prober) chance(percent int) bool { return p.IntN(100) < percent }

func one[T any](p prober, of ...T) T { return of[p.IntN(len(of))] }

// text is a value of a field of type string.
func (p prober) text(name protoreflect.Name) string {
	p.mu.Lock()
	known := p.known[name]
	p.mu.Unlock()
	if id := p.at[name]; id != "" && p.chance(95) {
		return id
	}
	if len(known) > 0 && p.chance(85) {
		return known[max(p.IntN(len(known)), p.IntN(len(known)))] // rather a late one
	}
	if name == "page_token" && len(known) > 0 && p.chance(50) { // almost a token
		token := []byte(one(p, known...))
		token[p.IntN(len(token))] = "aZ09_-=%"[p.IntN(8)]
		return string(token)
	}
	n := one(p, 1, 63, 64, 128, 129, 256, 257, 1024, 4096, 4097, 8193)
	return one(p, "", " ", "x", "ä\u2028", "a\x00b", "{}", "[1", "null", `{"a":1e999}`, "look", "ask_user", "app:a", "user:b", "temp:c", "image/png", "https://a.example/b",
		strings.Repeat("x", n), strings.Repeat("é", n/2), "'; --", "%", "../..", "\ufffd")
}

func (p prober) whole() int64 {
	p.mu.Lock()
	seqs := p.seqs
	p.mu.Unlock()
	if len(seqs) > 0 && p.chance(60) {
		return one(p, seqs...) + one[int64](p, 0, 0, 0, 1, -1, 1<<20)
	}
	return one[int64](p, 0, 1, 2, 10, 1000, 1001, -1, math.MaxInt32, math.MinInt32, 1<<40, math.MaxInt64, math.MinInt64)
}

// value is one of a field, or of an element of it.
func (p prober) value(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(p.text(fd.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(p.text("")))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(p.chance(50))
	case protoreflect.EnumKind:
		values := fd.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(p.IntN(values.Len())).Number())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(one(p, 0, 0.5, 1, -1, 80, 1e308, math.NaN(), math.Inf(1)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(one[float32](p, 0, 0.5, 1, -1, 80))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(p.whole()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(p.whole()))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(p.whole())
	case protoreflect.MessageKind:
		v := m.NewField(fd)
		if fd.IsList() {
			v = v.List().NewElement()
		}
		p.fill(v.Message(), depth+1)
		return v
	default:
		panic(fmt.Sprint("no value of ", fd.Kind()))
	}
}

// fill sets fields of a message.
func (p prober) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	switch m.Descriptor().FullName() {
	case "google.protobuf.Timestamp", "google.protobuf.Duration":
		now := time.Now().Unix()
		seconds := one(p, 0, 1, -1, now, now-1, -62135596800, 253402300799, 253402300800, 315576000000, math.MaxInt64, math.MinInt64)
		m.Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(seconds))
		m.Set(fields.ByName("nanos"), protoreflect.ValueOfInt32(one[int32](p, 0, 0, 1, 999999999, 1000000000, -1)))
		return
	case "agentd.v1.RunRequest.ExecuteRequest":
		if p.chance(90) {
			p.sane(m)
			if p.chance(60) {
				return
			}
		}
	case "agentd.v1.RunRequest.ToolCallResponse":
		if p.chance(70) {
			m.Set(fields.ByName("tool_call_id"), protoreflect.ValueOfString(p.text("tool_call_id")))
			m.Set(fields.ByName("output"), protoreflect.ValueOfString(p.text("")))
			return
		}
	case "agentd.v1.Resolution":
		if p.chance(70) {
			m.Set(fields.ByName("answer"), protoreflect.ValueOfString("because"))
			if p.chance(50) {
				p.fill(m.Mutable(fields.ByName("approve")).Message(), 9)
			}
			return
		}
	}
	for i := range fields.Len() {
		fd := fields.Get(i)
		percent := 25
		switch fd.Name() {
		case "session_id", "execute", "results", "resolution", "tool_call_id", "interaction_id", "name", "kind", "user_prompt":
			percent = 95
		case "fields", "agents", "sub_agents", "list_value", "struct_value":
			percent = 40
		}
		if oneof := fd.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			percent = 100 / oneof.Fields().Len()
		}
		if !p.chance(percent) || fd.Message() != nil && depth > 8 {
			continue
		}
		n := one(p, 1, 1, 1, 2, 3)
		if depth < 3 && p.chance(3) {
			n = one(p, 17, 65, 129, 513)
		}
		switch {
		case fd.IsMap():
			for range n {
				v := m.Mutable(fd).Map().NewValue()
				if fd.MapValue().Message() != nil {
					p.fill(v.Message(), depth+1)
				} else {
					v = p.value(m, fd.MapValue(), depth)
				}
				m.Mutable(fd).Map().Set(protoreflect.ValueOfString(p.text("")).MapKey(), v)
			}
		case fd.IsList():
			for range n {
				m.Mutable(fd).List().Append(p.value(m, fd, depth))
			}
		default:
			m.Set(fd, p.value(m, fd, depth))
		}
	}
}

// sane makes a request for a turn that mostly runs.
func (p prober) sane(m protoreflect.Message) {
	ex := lookRequest(one(p, "go", "hi", "look there"))
	ex.Agent.GetLlm().Model = "scripted/" + one(p, "looks", "careful", "curious", "rounds")
	ex.Agent.GetLlm().ToolNames = []string{"look", "danger"}
	ex.Agent.GetLlm().BuiltinTools = []string{"ask_user"}
	ex.Tools = append(ex.Tools, &agentdv1.Tool{Name: "danger", Description: "harms", NeedsApproval: true})
	ex.OnBusy = agentdv1.OnBusy(p.IntN(5))
	if id := p.text("session_id"); id != "" && len(id) <= 128 && p.chance(75) {
		ex.SessionId = &id
	}
	if p.chance(20) {
		ex.Budget = &agentdv1.Budget{ModelCalls: int64(p.IntN(3))}
	}
	if p.chance(10) {
		ex.IdempotencyKey = one(p, "a", "b", "c")
	}
	data, err := proto.Marshal(ex)
	if err == nil {
		err = proto.Unmarshal(data, m.Interface())
	}
	if err != nil {
		panic(err)
	}
}

// probe makes one request.
func (p prober) probe(ctx context.Context) {
	method := p.all.Get(p.IntN(p.all.Len()))
	if p.chance(40) {
		method = p.all.ByName(one[protoreflect.Name](p, "CreateTurn", "GetTurn", "ListTurns", "SubmitToolResults", "ResolveInteraction"))
	}
	p.mu.Lock()
	where := p.where
	p.mu.Unlock()
	if p.at = nil; len(where) > 0 && p.chance(80) { // rather a late one
		p.at = where[max(p.IntN(len(where)), p.IntN(len(where)), p.IntN(len(where)))]
	}
	if method.Name() == "DeleteSession" && p.chance(70) {
		return // little would be left
	}
	req := dynamicpb.NewMessage(method.Input())
	p.fill(req, 0)
	wire := one(p, "Connect JSON", "Connect binary", "gRPC", "gRPC-Web")
	data, err := protojson.Marshal(req)
	if wire != "Connect JSON" || err != nil {
		if wire == "Connect JSON" { // it cannot say it
			wire = "gRPC"
		}
		if data, err = proto.Marshal(req); err != nil {
			return // not UTF-8, which is no request
		}
	}
	c := p.wires[wire]
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if method.IsStreamingServer() { // it may have no end
		time.AfterFunc(time.Duration(p.IntN(30))*time.Millisecond, cancel)
	}
	replies, err := c.callContext(ctx, method, data)
	for _, reply := range replies {
		m := dynamicpb.NewMessage(method.Output())
		if c.json {
			err = errors.Join(err, protojson.Unmarshal(reply, m))
		} else {
			err = errors.Join(err, proto.Unmarshal(reply, m))
		}
		p.learn(m)
	}
	if method.IsStreamingServer() && connect.CodeOf(err) == connect.CodeCanceled {
		err = nil
	}
	if err == nil {
		p.count(method, "OK")
		return
	}
	var said *agentdv1.RunResponse_ErrorResponse
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		for _, detail := range ce.Details() {
			if value, err := detail.Value(); err == nil {
				said, _ = value.(*agentdv1.RunResponse_ErrorResponse)
			}
		}
	}
	p.count(method, said.GetCode().String())
	if said.GetCode() == 0 || said.GetCode() == agentdv1.ErrorCode_ERROR_CODE_INTERNAL || said.GetMessage() == "" || len(said.GetMessage()) > 5000 {
		p.fault("%s on %s: %v: %v\n%.2000v", method.Name(), wire, err, said, req)
	}
}

// TestProbes makes requests by chance, in any order, over a few sessions whose turns
// run: no one is a fault of the server's, each refusal says what it is, none hangs, and
// the server is as well after them as before.
func TestProbes(t *testing.T) {
	seed := *probesSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	log := &buffer{}
	d := start(t, daemon.Config{
		Scripts: probeScripts, MaxMessageBytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Turns: limits.Limits{IdleTurn: 20 * time.Millisecond},
	})
	p := &probes{
		known:   map[protoreflect.Name][]string{"model": {"echo", "scripted/looks"}, "name": {"root", "a", "b"}, "tool_name": {"look"}},
		all:     agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService").Methods(),
		wires:   callers(t, d),
		replies: map[string]int{},
		fault: func(format string, values ...any) {
			t.Errorf("with -probes.seed=%d: %s", seed, fmt.Sprintf(format, values...))
		},
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			one := prober{probes: p, Rand: rand.New(rand.NewPCG(seed, uint64(i)))}
			for range *probesEach {
				one.probe(t.Context())
			}
		})
	}
	wg.Wait()
	t.Logf("with -probes.seed=%d: %v", seed, p.replies)
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "level=ERROR") {
			p.fault("it logs %.2000s", line)
		}
	}
	resp, err := http.Get(d.URL() + "/readyz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("it is not ready: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	c := wires(t, d)["gRPC"]
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "hi", Agent: llm("root", "echo")}}).GetTurn()
	until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	if len(p.known["turn_id"]) < 5 {
		t.Errorf("only the turns %q were made", p.known["turn_id"])
	}
}
