package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// newRequest is a request of a client that knows one field more.
type newRequest struct {
	at     string // where, for people
	binary []byte
	json   string // "" for what JSON cannot say
	of     protoreflect.MessageDescriptor
}

// newRequests are all places in a message where there may be a field more: the message
// itself, and each message within it, in fields, members of oneofs, lists and maps.
func newRequests(m protoreflect.MessageDescriptor) []newRequest {
	var all []newRequest
	var visit func(m protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor)
	visit = func(m protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor) {
		all = append(all, newRequestAt(m, path))
		if strings.HasPrefix(string(m.FullName()), "google.protobuf.") {
			return
		}
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			cycle := slices.ContainsFunc(path, func(up protoreflect.FieldDescriptor) bool { return up == f })
			if f.Message() != nil && !cycle {
				visit(f.Message(), append(slices.Clone(path), f))
			}
		}
	}
	visit(m, nil)
	return all
}

func newRequestAt(m protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor) newRequest {
	r := newRequest{
		binary: protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1),
		json:   `{"followChildren":true}`, of: m,
	}
	sayable := !m.IsMapEntry() && !strings.HasPrefix(string(m.FullName()), "google.protobuf.")
	for _, f := range slices.Backward(path) {
		r.at = string(f.Name()) + "." + r.at
		r.binary = protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), r.binary)
		switch {
		case f.IsMap() && f.MapValue().Message() == nil:
			sayable = false
		case f.IsList():
			r.json = "[" + r.json + "]"
		case f.ContainingMessage().IsMapEntry():
			r.json = `{"k":` + r.json + "}"
			continue
		}
		r.json = fmt.Sprintf(`{%q:%s}`, f.JSONName(), r.json)
	}
	if !sayable {
		r.json = ""
	}
	return r
}

func (r *newRequest) says(json bool) string {
	if json {
		return fmt.Sprintf("this server does not know `followChildren` of %s", r.of.Name())
	}
	return fmt.Sprintf("this server does not know field 99 of %s", r.of.FullName())
}

// reads reports whether a method may be called by GET.
func reads(method protoreflect.MethodDescriptor) bool {
	opts, ok := method.Options().(*descriptorpb.MethodOptions)
	return ok && opts.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// A request with a field that this server does not know is refused, wherever the field
// stands, and nothing happens.
func TestNewerClient(t *testing.T) {
	d := start(t, daemon.Config{})
	methods := agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService").Methods()
	all := callers(t, d)
	h1, h2 := &http.Client{Transport: &http.Transport{}}, h2c(t)
	t.Cleanup(h1.CloseIdleConnections)
	byGet := []connect.ClientOption{connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}
	inJSON := connect.WithCodec(getForms{forms{"json"}})
	all["GET, JSON"] = caller{hc: h1, url: d.URL(), json: true, opts: append(slices.Clone(byGet), inJSON)}
	all["GET, binary"] = caller{hc: h1, url: d.URL(), opts: append(slices.Clone(byGet), connect.WithCodec(getForms{forms{"proto"}}))}
	all["gRPC, JSON"] = caller{hc: h2, url: d.URL(), json: true, opts: []connect.ClientOption{connect.WithGRPC(), inJSON}}
	all["gRPC-Web, JSON"] = caller{hc: h2, url: d.URL(), json: true, opts: []connect.ClientOption{connect.WithGRPCWeb(), inJSON}}
	for wire, c := range all {
		for i := range methods.Len() {
			method := methods.Get(i)
			if strings.HasPrefix(wire, "GET") && !reads(method) {
				continue
			}
			for _, r := range newRequests(method.Input()) {
				data := r.binary
				if c.json {
					data = []byte(r.json)
				}
				if len(data) == 0 {
					continue
				}
				_, err := c.call(t, method, data)
				want := badRequest{name: wire + " " + r.at, code: invalidArgument, kind: invalidRequest, says: []string{r.says(c.json)}}
				want.check(t, string(method.Name()), strings.NewReplacer(), err)
			}
		}
	}
	if sessions := call(t, wires(t, d)["gRPC"].ListSessions, &agentdv1.ListSessionsRequest{}).GetSessions(); len(sessions) != 0 {
		t.Errorf("refused requests have made %v", sessions)
	}
}

// formStream is a stream of Run on any wire.
type formStream struct {
	t    *testing.T
	json bool
	*connect.BidiStreamForClient[form, form]
}

func (s formStream) sendMessage(m proto.Message) {
	s.t.Helper()
	encode := proto.Marshal
	if s.json {
		encode = protojson.Marshal
	}
	data, err := encode(m)
	if err == nil {
		err = s.Send(&form{data})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s formStream) next() (*agentdv1.RunResponse, error) {
	reply, err := s.Receive()
	if err != nil {
		return nil, err
	}
	m := &agentdv1.RunResponse{}
	decode := proto.Unmarshal
	if s.json {
		decode = protojson.Unmarshal
	}
	if err := decode(reply.data, m); err != nil {
		s.t.Fatal(err)
	}
	return m, nil
}

// until reads up to a reply that is wanted.
func (s formStream) until(want func(*agentdv1.RunResponse) bool) *agentdv1.RunResponse {
	s.t.Helper()
	for {
		m, err := s.next()
		if err != nil {
			s.t.Fatal(err)
		}
		if want(m) {
			return m
		}
	}
}

// On a stream, a first message with a field that is not known starts nothing; a later
// one changes nothing, and the turn continues.
func TestNewerClientOfRun(t *testing.T) { //nolint:tparallel // its subtests use one daemon, one after the other
	t.Parallel() // it waits
	d := start(t, daemon.Config{})
	hc := h2c(t)
	places := newRequests((&agentdv1.RunRequest{}).ProtoReflect().Descriptor())
	greet := tool("greet", `{"type":"object","properties":{"name":{"type":"string"}}}`)
	good := execute(llm("root", "scripted/demo", "greet"), "Say hi to Alice", greet)
	for name, opts := range map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}} {
		for _, json := range []bool{false, true} {
			codec := forms{"proto"}
			if json {
				codec = forms{"json"}
			}
			open := func(t *testing.T) formStream {
				c := connect.NewClient[form, form](hc, d.URL()+agentdv1connect.AgentdRunProcedure, append(slices.Clone(opts), connect.WithCodec(codec))...)
				return formStream{t, json, c.CallBidiStream(t.Context())}
			}
			t.Run(fmt.Sprintf("%s, JSON %v", name, json), func(t *testing.T) {
				newerFirst(t, open, places)
				newerLater(t, open(t), places, good)
			})
		}
	}
}

func newerFirst(t *testing.T, open func(*testing.T) formStream, places []newRequest) {
	t.Helper()
	for _, r := range places {
		s := open(t)
		data := r.binary
		if s.json {
			data = []byte(r.json)
		}
		if len(data) == 0 {
			_ = s.CloseRequest()
			continue
		}
		if err := s.Send(&form{data}); err != nil {
			t.Fatal(err)
		}
		reply, err := s.next()
		if e := reply.GetError(); err != nil || e.GetCode() != invalidRequest || !strings.Contains(e.GetMessage(), r.says(s.json)) {
			t.Errorf("first, %s: got %v, %v, want %s", r.at, reply, err, r.says(s.json))
		}
		_ = s.CloseRequest() // the server waits for it
		if _, err := s.next(); !errors.Is(err, io.EOF) {
			t.Errorf("first, %s: the stream ended with %v", r.at, err)
		}
		_ = s.CloseResponse()
	}
}

func newerLater(t *testing.T, s formStream, places []newRequest, good *agentdv1.RunRequest) {
	t.Helper()
	s.sendMessage(good)
	call := s.until(func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }).GetToolCall()
	for i, r := range places {
		data := r.binary
		if s.json {
			data = []byte(r.json)
		}
		if len(data) == 0 {
			continue
		}
		if i%100 == 0 { // too many refused in a row end the stream
			s.sendMessage(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}})
		}
		if err := s.Send(&form{data}); err != nil {
			t.Fatal(err)
		}
		e := s.until(func(m *agentdv1.RunResponse) bool { return m.GetError() != nil }).GetError()
		if e.GetCode() != invalidRequest || !strings.Contains(e.GetMessage(), r.says(s.json)) {
			t.Errorf("later, %s: got %v, want %s", r.at, e, r.says(s.json))
		}
	}
	s.sendMessage(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: &agentdv1.RunRequest_ToolCallResponse{
		ToolCallId: call.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "Salut, Alice"},
	}}})
	end := s.until(func(m *agentdv1.RunResponse) bool { return m.GetEnd() != nil }).GetEnd()
	if !end.GetCompleted() {
		t.Errorf("the turn ended with %v", end)
	}
	_ = s.CloseRequest()
	_ = s.CloseResponse()
}
