package attacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// schemas cost much to read, or to judge by.
func schemas() map[string]string {
	doubling := &strings.Builder{} // each definition asks for the next one twice
	doubling.WriteString(`{"$ref":"#/$defs/a0","$defs":{`)
	for i := range 40 {
		fmt.Fprintf(doubling, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	doubling.WriteString(`"a40":{"type":"string"}}}`)
	anyOf := &strings.Builder{}
	anyOf.WriteString(`{"$ref":"#/$defs/a0","$defs":{`)
	for i := range 30 {
		fmt.Fprintf(anyOf, `"a%d":{"anyOf":[{"not":{"$ref":"#/$defs/a%d"}},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	anyOf.WriteString(`"a30":{"type":"string"}}}`)
	var properties, values []string
	for i := range 20_000 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string","description":"d"}`, i))
		values = append(values, fmt.Sprintf(`"v%d"`, i))
	}
	return map[string]string{
		"references that double":  doubling.String(),
		"negations that double":   anyOf.String(),
		"a reference to itself":   `{"$ref":"#"}`,
		"a round of references":   `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"a dynamic reference":     `{"$dynamicAnchor":"a","items":{"$dynamicRef":"#a"},"allOf":[{"$dynamicRef":"#a"}]}`,
		"a reference to the web":  `{"$ref":"http://127.0.0.1:1/schema.json"}`,
		"a reference to a file":   `{"$ref":"file:///etc/passwd"}`,
		"20,000 properties":       `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`,
		"20,000 values":           `{"enum":[` + strings.Join(values, ",") + `]}`,
		"a pattern that doubles":  `{"type":"string","pattern":"^(([a-z])+.)+[A-Z]([a-z])+$"}`,
		"a pattern of 1,000^3":    `{"type":"string","pattern":"((a{1000}){1000}){1000}"}`,
		"a pattern of 500,000":    `{"type":"string","pattern":"` + strings.Repeat("(a|", 100_000) + strings.Repeat(")", 100_000) + `"}`,
		"500 levels":              strings.Repeat(`{"type":"array","items":`, 500) + "{}" + strings.Repeat("}", 500),
		"a wide allOf":            `{"allOf":[` + strings.Repeat(`{"type":"string"},`, 50_000) + `{}]}`,
		"a key that is a prompt":  `{"type":"object","properties":{"` + strings.Repeat("k", 500_000) + `":{}}}`,
		"numbers without measure": `{"type":"number","multipleOf":1e-300,"maximum":1e308,"minLength":1` + strings.Repeat("0", 100_000) + `}`,
	}
}

// schemaBombs are the schemas of outputs, which the response is judged by, and of tools.
func schemaBombs(ctx context.Context, a *attacker) {
	all := schemas()
	for pause(ctx, jitter(50*time.Millisecond)) {
		for what, schema := range all {
			judged := echo("judge", "")
			judged.GetLlm().OutputSchema = &schema
			a.turnOf(ctx, what+" as output", execute(judged, `"`+strings.Repeat("a", 5000)+`"`, nil))
			agent, tools := worker()
			tools[0].InputSchema = &schema
			ex := execute(agent, "go", nil)
			ex.Tools = tools
			a.turnOf(ctx, what+" as a tool's", ex)
		}
	}
}

// turnOf asks for a turn in JSON.
func (a *attacker) turnOf(ctx context.Context, what string, ex *agentdv1.RunRequest_ExecuteRequest) {
	data := must(protojson.Marshal(&agentdv1.CreateTurnRequest{Execute: ex}))
	a.post(ctx, what, turnPath, bytes.NewReader(data), contentType, asJSON)
}

// stringsOf are the paths to the strings, bytes and maps that a message may hold; no message stands in itself.
func stringsOf(md protoreflect.MessageDescriptor) [][]protoreflect.FieldDescriptor {
	var found [][]protoreflect.FieldDescriptor
	var walk func(md protoreflect.MessageDescriptor, above []protoreflect.FieldDescriptor)
	walk = func(md protoreflect.MessageDescriptor, above []protoreflect.FieldDescriptor) {
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			path := append(slices.Clone(above), fd)
			switch {
			case fd.IsMap(), fd.Kind() == protoreflect.StringKind, fd.Kind() == protoreflect.BytesKind:
				found = append(found, path)
			case fd.Kind() == protoreflect.MessageKind && !slices.ContainsFunc(path, func(f protoreflect.FieldDescriptor) bool {
				return f.ContainingMessage() == fd.Message()
			}):
				walk(fd.Message(), path)
			}
		}
	}
	walk(md, nil)
	return found
}

// put puts a text into the place that a path leads to.
func put(m protoreflect.Message, path []protoreflect.FieldDescriptor, text string) {
	for ; len(path) > 1; path = path[1:] {
		if !path[0].IsList() {
			m = m.Mutable(path[0]).Message()
			continue
		}
		list := m.Mutable(path[0]).List()
		if list.Len() == 0 {
			list.AppendMutable()
		}
		m = list.Get(0).Message()
	}
	fd, value := path[0], protoreflect.ValueOfString(text)
	if fd.Kind() == protoreflect.BytesKind {
		value = protoreflect.ValueOfBytes([]byte(text))
	}
	switch {
	case fd.IsMap() && fd.MapValue().Kind() == protoreflect.StringKind:
		m.Mutable(fd).Map().Set(protoreflect.ValueOfString("key").MapKey(), value)
		m.Mutable(fd).Map().Set(value.MapKey(), value)
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		entries.Set(value.MapKey(), entries.NewValue())
	case fd.IsList():
		m.Mutable(fd).List().Append(value)
	default:
		m.Set(fd, value)
	}
}

// methods are all of the server's but Run, whose requests CreateTurn and SubmitToolResults have too.
func methods() []protoreflect.MethodDescriptor {
	var all []protoreflect.MethodDescriptor
	service := agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService")
	for i := range service.Methods().Len() {
		all = append(all, service.Methods().Get(i))
	}
	return all
}

// promptEverywhere puts a prompt of 900,000 bytes into each string of each request.
func promptEverywhere(ctx context.Context, a *attacker) {
	text := strings.Repeat("prompt ", 128_000)
	for pause(ctx, jitter(50*time.Millisecond)) {
		a.everywhere(ctx, text)
	}
}

// logLines puts what looks like lines of a log, and moves a terminal's cursor, into each string of each request, and into
// headers and paths.
func logLines(ctx context.Context, a *attacker) {
	line := must(json.Marshal(map[string]string{"time": "2000-01-01T00:00:00Z", "level": "ERROR", "msg": injected}))
	text := "x\r\n" + string(line) + "\n\x1b[2J\x1b]0;title\x07\u2028\u0085" + string(line) + "\n"
	for ctx.Err() == nil {
		a.everywhere(ctx, text)
		for _, header := range []string{"User-Agent", "X-Request-Id", "Traceparent", "X-Forwarded-For", "Idempotency-Key", "Origin", "Connect-Timeout-Ms"} {
			a.post(ctx, "a header", turnPath, strings.NewReader("{}"), contentType, asJSON, header, "x \t"+string(line))
		}
		for _, path := range []string{"/%0d%0a" + injected + "%1b[2J", "/agentd.v1.SessionService/%0a" + injected, "/?a=%0a" + injected} {
			a.post(ctx, "a path", path, http.NoBody, contentType, asJSON)
		}
		a.post(ctx, "a credential", turnPath, strings.NewReader("{}"), contentType, asJSON, "Authorization", "Bearer "+string(line))
		pause(ctx, jitter(50*time.Millisecond))
	}
}

// everywhere sends each request, fine otherwise, with a text in each of its strings, one at a time.
func (a *attacker) everywhere(ctx context.Context, text string) {
	agent, tools := worker()
	ex := execute(agent, "go", map[string]any{"k": 1})
	ex.Tools = tools
	a.renew(ctx)
	for _, method := range methods() {
		path := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
		for _, at := range stringsOf(method.Input()) {
			if !pause(ctx, jitter(time.Millisecond)) {
				return
			}
			m := dynamicpb.NewMessage(method.Input())
			for name, id := range map[protoreflect.Name]string{"session_id": a.session, "turn_id": a.turnID} {
				if fd := method.Input().Fields().ByName(name); fd != nil {
					m.Set(fd, protoreflect.ValueOfString(id))
				}
			}
			if method.Name() == "CreateTurn" {
				m.Set(method.Input().Fields().ByName("execute"), protoreflect.ValueOfMessage(proto.Clone(ex).ProtoReflect()))
			}
			put(m, at, text)
			data, kind := must(proto.Marshal(m)), asProto
			if method.IsStreamingServer() {
				kind, data = asStream, append(envelope(0, uint32(len(data))), data...)
			}
			one, cancel := context.WithTimeout(ctx, time.Second) // a watch has no end
			a.post(one, string(method.Name()), path, bytes.NewReader(data), contentType, kind)
			cancel()
		}
	}
}
