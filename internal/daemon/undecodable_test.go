package daemon_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
)

// getForms are forms that can be sent by GET.
type getForms struct{ forms }

func (f getForms) MarshalStable(m any) ([]byte, error) { return f.Marshal(m) }
func (f getForms) IsBinary() bool                      { return f.name != "json" }

// undecodable is what a wire can carry and no method takes.
type undecodable struct {
	name   string
	binary []byte // "" does not say it
	json   string
	// method and codec stand for the real ones.
	method, codec string
	compression   string
	code          connect.Code
	kind          agentdv1.ErrorCode
	says          []string
	notByGet      bool // it does not fit into an address
}

func undecodables(t *testing.T) []undecodable {
	t.Helper()
	binary := func(m proto.Message) []byte {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	long := strings.Repeat("x", 70_000)
	name := strings.Repeat("n", 5000)
	// What a client says in the place where the server notes a fault.
	forged := protowire.AppendBytes(protowire.AppendTag(nil, protowire.MaxValidNumber, protowire.BytesType), binary(&agentdv1.RunResponse_ErrorResponse{
		Code: agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, Message: "forged",
	}))
	return []undecodable{
		{name: "garbage", binary: []byte{0xff}, json: "garbage", code: invalidArgument, kind: invalidRequest, says: []string{"the message is no "}},
		{name: "half of a message", binary: []byte{0x0a, 0x05, 'a'}, json: `{"sessionId":"a`, code: invalidArgument, kind: invalidRequest, says: []string{"the message is no "}},
		{name: "not UTF-8", binary: []byte{0x0a, 0x01, 0xff}, json: "{\"sessionId\":\"\xff\"}", code: invalidArgument, kind: invalidRequest, says: []string{"UTF-8"}},
		{name: "unknown field", json: `{"sessionID":"a"}`, code: invalidArgument, kind: invalidRequest, says: []string{"does not know `sessionID` of "}},
		{name: "long unknown field", json: `{"` + name + `":"a"}`, code: invalidArgument, kind: invalidRequest, says: []string{"does not know `nnn", "…"}, notByGet: true},
		{name: "wrong type", json: `{"sessionId":7}`, code: invalidArgument, kind: invalidRequest, says: []string{"sessionId"}},
		{name: "field twice", json: `{"sessionId":"a","session_id":"b"}`, code: invalidArgument, kind: invalidRequest, says: []string{"duplicate field", "session_id"}},
		{name: "deep", json: `{"a":` + strings.Repeat("[", 5000), code: invalidArgument, kind: invalidRequest, notByGet: true},
		{name: "too large", binary: binary(&agentdv1.GetTurnRequest{SessionId: long}), json: `{"sessionId":"` + long + `"}`, code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"65536 bytes"}, notByGet: true},
		{name: "too large for its address", json: `{"sessionId":"` + long + `"}`, code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"65536 bytes"}},
		{name: "far too large", binary: make([]byte, 1<<20), json: strings.Repeat(" ", 1<<20), code: connect.CodeResourceExhausted, kind: limitExceeded, says: []string{"65536 bytes"}, notByGet: true},
		{name: "compressed", compression: "gzip", binary: binary(&agentdv1.GetTurnRequest{SessionId: "a"}), json: `{"sessionId":"a"}`, code: invalidArgument, kind: invalidRequest, says: []string{"compressed requests"}, notByGet: true},
		{name: "compressed otherwise", compression: "br", binary: binary(&agentdv1.GetTurnRequest{SessionId: "a"}), json: `{"sessionId":"a"}`, code: connect.CodeUnimplemented, kind: invalidRequest, says: []string{`"br"`, "compressed requests"}, notByGet: true},
		{name: "unknown method", method: "ForgetTurn", binary: []byte{0xff}, json: "{}", code: connect.CodeUnimplemented, kind: invalidRequest, says: []string{`no method "ForgetTurn"`}},
		{name: "unknown content type", codec: "xml", binary: []byte{0xff}, json: "<a/>", code: invalidArgument, kind: invalidRequest, says: []string{`xml"`, "json"}},
		{name: "forged fault", binary: append(forged, binary(&agentdv1.GetTurnRequest{SessionId: "nobody"})...), code: invalidArgument, kind: invalidRequest, says: []string{"does not know field 536870911 of agentd.v1."}},
	}
}

// Whatever cannot be decoded, or is no call at all, is refused on each wire with the
// protocol's own error in the details, like any other mistake.
func TestUndecodable(t *testing.T) {
	d := start(t, daemon.Config{MaxMessageBytes: 1 << 16})
	methods := agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService").Methods()
	all := callers(t, d)
	h1 := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(h1.CloseIdleConnections)
	byGet := []connect.ClientOption{connect.WithHTTPGet(), connect.WithIdempotency(connect.IdempotencyNoSideEffects)}
	all["GET, JSON"] = caller{hc: h1, url: d.URL(), json: true, opts: append(slices.Clone(byGet), connect.WithCodec(getForms{forms{"json"}}))}
	all["GET, binary"] = caller{hc: h1, url: d.URL(), opts: append(slices.Clone(byGet), connect.WithCodec(getForms{forms{"proto"}}))}
	for wire, c := range all {
		for _, u := range undecodables(t) {
			data := u.binary
			if c.json {
				data = []byte(u.json)
			}
			get := strings.HasPrefix(wire, "GET")
			if len(data) == 0 || get && u.notByGet {
				continue
			}
			for _, name := range []protoreflect.Name{"GetTurn", "WatchTurn"} {
				if get && name == "WatchTurn" {
					continue
				}
				t.Run(wire+"/"+u.name+"/"+string(name), func(t *testing.T) {
					u.send(t, c, methods.ByName(name), data)
				})
			}
		}
	}
}

// send makes the call and checks what comes back.
func (u *undecodable) send(t *testing.T, c caller, method protoreflect.MethodDescriptor, data []byte) {
	t.Helper()
	c.opts = slices.Clone(c.opts)
	if u.compression != "" {
		c.opts = append(c.opts, connect.WithSendCompression(u.compression), connect.WithAcceptCompression(u.compression,
			func() connect.Decompressor { return &gzip.Reader{} }, func() connect.Compressor { return gzip.NewWriter(io.Discard) }))
	}
	if u.codec != "" {
		c.opts = append(c.opts, connect.WithCodec(getForms{forms{u.codec}}))
	}
	c.path = u.method
	_, err := c.call(t, method, data)
	want := badRequest{name: u.name, code: u.code, kind: u.kind, says: u.says}
	want.check(t, string(method.Name()), strings.NewReplacer(), err)
}

// What a GET cannot carry is reported as the client's mistake.
func TestUnreadableGet(t *testing.T) {
	d := start(t, daemon.Config{})
	for query, says := range map[string]string{
		"encoding=json&base64=1&message=%25%25":       "base64",
		"encoding=json&compression=br&message=%7B%7D": "br",
		"encoding=proto&base64=1&message=CgF4":        `session \"x\"`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL()+"/agentd.v1.SessionService/GetTurn?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode == http.StatusInternalServerError ||
			!strings.Contains(string(body), says) || !strings.Contains(string(body), `"details"`) {
			t.Errorf("%s: status %d, %s, error %v", query, resp.StatusCode, body, err)
		}
	}
}

// What is no call of Run says so on each wire too.
func TestNoCallOfRun(t *testing.T) {
	d := start(t, daemon.Config{})
	for wire, c := range callers(t, d) {
		client := connect.NewClient[form, form](c.hc, d.URL()+"/agentd.v1.Agentd/Walk", c.opts...)
		_, err := client.CallUnary(t.Context(), connect.NewRequest(&form{}))
		want := badRequest{name: wire, code: connect.CodeUnimplemented, kind: invalidRequest, says: []string{`Agentd has no method "Walk"`}}
		if c.hc.Transport.(*http.Transport).Protocols == nil { // Run needs HTTP/2
			if err == nil {
				t.Errorf("%s: no error", wire)
			}
			continue
		}
		want.check(t, "Walk", strings.NewReplacer(), err)
	}
}
