package server

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// inlineLLM is an agent of the oldest clients in the binary form: field 2 are tools.
// What is a string is a name.
func inlineLLM(t *testing.T, tools ...any) *agentdv1.Agent {
	t.Helper()
	var fields []byte
	for _, tool := range tools {
		fields = protowire.AppendTag(fields, toolNamesField, protowire.BytesType)
		switch tool := tool.(type) {
		case string:
			fields = protowire.AppendString(fields, tool)
		case *agentdv1.Tool:
			data, err := proto.Marshal(tool)
			if err != nil {
				t.Fatal(err)
			}
			fields = protowire.AppendBytes(fields, data)
		}
	}
	llm := &agentdv1.LlmAgent{Model: "echo"}
	llm.ProtoReflect().SetUnknown(fields)
	return &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: llm}}
}

func toolOf(name, description string) *agentdv1.Tool {
	return &agentdv1.Tool{Name: name, Description: description, InputSchema: new(`{"type":"object"}`)}
}

// tooNew is a tool with a field that there is not.
func tooNew(t *testing.T) *agentdv1.Tool {
	t.Helper()
	tool := toolOf("new", "Newer.")
	tool.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	return tool
}

// Tools that the oldest clients define within their agents are tools of the request,
// which the agents name.
func TestInlineTools(t *testing.T) {
	look, find := toolOf("look", strings.Repeat("Looks. ", 100)), toolOf("find", "Finds.")
	long := `{"name":"look","description":"` + look.GetDescription() + `","inputSchema":"{\"type\":\"object\"}"}`
	short := `{ "description" : "Finds.", "input_schema":"{\"type\":\"object\"}","name":"fi\u006ed" }`
	seq := func(agents ...*agentdv1.Agent) *agentdv1.Agent {
		return &agentdv1.Agent{Name: "s", AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: agents}}}
	}
	par := func(agents ...*agentdv1.Agent) *agentdv1.Agent {
		return &agentdv1.Agent{Name: "p", AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: agents}}}
	}
	loop := func(agents ...*agentdv1.Agent) *agentdv1.Agent {
		return &agentdv1.Agent{Name: "l", AgentType: &agentdv1.Agent_Loop{Loop: &agentdv1.LoopAgent{Agents: agents}}}
	}
	under := func(a *agentdv1.Agent, subs ...*agentdv1.Agent) *agentdv1.Agent {
		a.GetLlm().SubAgents = subs
		return a
	}
	llm := func(names ...string) *agentdv1.Agent {
		return &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "echo", ToolNames: names}}}
	}
	for name, c := range map[string]struct {
		agent *agentdv1.Agent // in the binary form
		json  string          // of the agent
		tools []*agentdv1.Tool
		want  *agentdv1.Agent
		all   []*agentdv1.Tool
		err   string
	}{
		"none": {
			agent: llm("look"), json: `{"name":"a","llm":{"model":"echo","toolNames":["look"]}}`,
			tools: []*agentdv1.Tool{look}, want: llm("look"), all: []*agentdv1.Tool{look},
		},
		"one": {
			agent: inlineLLM(t, look), json: `{"name":"a","llm":{"model":"echo","tools":[` + long + `]}}`,
			want: llm("look"), all: []*agentdv1.Tool{look},
		},
		"an empty list": {
			agent: llm(), json: `{"name":"a","llm":{"model":"echo","tools":[]}}`, want: llm(),
		},
		"null": {
			agent: llm(), json: `{"name":"a","llm":{"tools":null,"model":"echo"}}`, want: llm(),
		},
		"a tool with a field to come": {
			agent: inlineLLM(t, find, tooNew(t)), json: `{"name":"a","llm":{"tools":[` + short + `,{"name":"t","cost":{"a":1}}]}}`,
			err: `this server does not know `,
		},
		"two and a name": {
			agent: inlineLLM(t, look, "other", find), json: `{"name":"a","llm":{"tool_names":[` + long + ` ,"other",` + short + `],"model":"echo"}}`,
			want: llm("look", "other", "find"), all: []*agentdv1.Tool{look, find},
		},
		"the same twice": {
			agent: inlineLLM(t, look, look), json: `{"name":"a","llm":{"model":"echo","toolNames":[` + long + `,` + long + `]}}`,
			want: llm("look", "look"), all: []*agentdv1.Tool{look},
		},
		"in the request too": {
			agent: inlineLLM(t, look, find), json: `{"name":"a","llm":{"model":"echo","toolNames":[` + long + `,` + short + `]}}`,
			tools: []*agentdv1.Tool{find}, want: llm("look", "find"), all: []*agentdv1.Tool{find, look},
		},
		"nested": {
			agent: seq(llm(), par(loop(under(llm(), inlineLLM(t, find)), inlineLLM(t, find)), inlineLLM(t, look))),
			json: `{"name":"s","sequential":{"agents":[{"name":"a","llm":{"model":"echo"}},{"name":"p","parallel":{"agents":[` +
				`{"name":"l","loop":{"agents":[{"name":"a","llm":{"model":"echo","subAgents":[{"name":"a","llm":{"model":"echo","tools":[` + short + `]}}]}},` +
				`{"name":"a","llm":{"model":"echo","tools":[` + short + `]}}]}},{"name":"a","llm":{"model":"echo","tools":[` + long + `]}}]}}]}}`,
			want: seq(llm(), par(loop(under(llm(), llm("find")), llm("find")), llm("look"))), all: []*agentdv1.Tool{find, look},
		},
		"two of one name": {
			agent: seq(inlineLLM(t, look), inlineLLM(t, find, toolOf("look", "Does not look."))),
			json: `{"name":"s","sequential":{"agents":[{"name":"a","llm":{"tools":[` + long + `]}},{"name":"a","llm":{"tools":[` + short +
				`,{"name":"look","description":"Does not look."}]}}]}}`,
			err: `execute.agent.sequential.agents[1].llm.tool_names[1] defines the tool "look" otherwise than execute.agent.sequential.agents[0].llm.tool_names[0]`,
		},
		"one of the request's name": {
			agent: inlineLLM(t, look), json: `{"name":"a","llm":{"tools":[` + long + `]}}`, tools: []*agentdv1.Tool{find, toolOf("look", "Does not look.")},
			err: `execute.agent.llm.tool_names[0] defines the tool "look" otherwise than execute.tools[1]`,
		},
		"no tool": {
			agent: inlineLLM(t, "\n\x7fxyz"), json: `{"name":"a","llm":{"tools":[{"name":["look"]}]}}`,
			err: `execute.agent.llm.tool_names[0] holds a tool that cannot be read`,
		},
	} {
		for form, decode := range map[string]func(proto.Message) error{
			"binary": func(m proto.Message) error {
				ex := &agentdv1.RunRequest_ExecuteRequest{Agent: c.agent, Tools: c.tools, UserPrompt: "go"}
				sent := proto.Message(&agentdv1.CreateTurnRequest{Execute: ex})
				if _, ok := m.(*agentdv1.RunRequest); ok {
					sent = &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}}
				}
				data, err := proto.Marshal(sent)
				if err != nil {
					t.Fatal(err)
				}
				return binaryCodec{}.Unmarshal(data, m)
			},
			"JSON": func(m proto.Message) error {
				tools := []byte("[")
				for i, tool := range c.tools {
					data, err := jsonCodec{}.Marshal(tool)
					if err != nil {
						t.Fatal(err)
					}
					tools = append(append(tools, strings.Repeat(",", min(i, 1))...), data...)
				}
				return jsonCodec{}.Unmarshal([]byte(` { "execute" : {"tools":`+string(tools)+`], "agent":`+c.json+`, "userPrompt":"go"}}`), m)
			},
		} {
			for _, m := range []interface {
				proto.Message
				GetExecute() *agentdv1.RunRequest_ExecuteRequest
			}{&agentdv1.RunRequest{}, &agentdv1.CreateTurnRequest{}} {
				t.Run(name+", "+form+" "+string(m.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
					err := decode(m)
					if c.err != "" {
						e := decodeFault(err, "message")
						if e.Code != codeInvalid || !strings.HasPrefix(e.Message, c.err) {
							t.Errorf("got %v, want %s", e, c.err)
						}
						return
					}
					want := &agentdv1.RunRequest_ExecuteRequest{Agent: c.want, Tools: c.all, UserPrompt: "go"}
					if err != nil || !proto.Equal(m.GetExecute(), want) {
						t.Errorf("got %v, %v, want %v", m.GetExecute(), err, want)
					}
				})
			}
		}
	}
}

// What inline tools hold counts, and is refused where it is too much, like anything
// else.
func TestInlineToolsAreBounded(t *testing.T) {
	var many []any
	for i := range maxTools + 1 {
		many = append(many, toolOf("t"+strings.Repeat("x", i), "A tool."))
	}
	values := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "t")
	for range maxValues {
		values = protowire.AppendString(protowire.AppendTag(values, 2, protowire.BytesType), "")
	}
	heavy := &agentdv1.LlmAgent{}
	heavy.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, toolNamesField, protowire.BytesType), values))
	deep := inlineLLM(t, toolOf("t", "A tool."))
	for range maxDepth {
		deep = &agentdv1.Agent{AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{SubAgents: []*agentdv1.Agent{deep}}}}
	}
	for name, c := range map[string]struct {
		agent *agentdv1.Agent
		want  string
	}{
		"tools":  {inlineLLM(t, many...), "at most 512 are allowed"},
		"values": {&agentdv1.Agent{AgentType: &agentdv1.Agent_Llm{Llm: heavy}}, "values"},
		"depth":  {deep, "nested too deeply"},
	} {
		data, err := proto.Marshal(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{Agent: c.agent}}})
		if err != nil {
			t.Fatal(err)
		}
		err = binaryCodec{}.Unmarshal(data, &agentdv1.RunRequest{})
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if e := decodeFault(err, "message"); !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: got %v, want %s", name, e, c.want)
		}
	}
}

// JSON that is none is left to the decoder, and so is what only looks like a tool.
func TestInlineToolsAndBrokenJSON(t *testing.T) {
	whole := `{"execute":{"agent":{"name":"a","llm":{"tools":[{"name":"look","description":"\"Looks\""}],"model":"echo"}},"initialState":{"llm":{"tools":[{"name":1}]}}}}`
	if err := (jsonCodec{}).Unmarshal([]byte(whole), &agentdv1.RunRequest{}); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		err := jsonCodec{}.Unmarshal([]byte(whole[:i]), &agentdv1.RunRequest{})
		if err == nil {
			t.Errorf("%s: no error", whole[:i])
		}
		if _, ours := errors.AsType[*fault.Error](err); ours {
			t.Errorf("%s: %v", whole[:i], err)
		}
	}
	for _, other := range []string{
		`{"execute":{"agent":{"llm":{"tools":["look"]}}}}`, `{"execute":{"agent":{"llm":{"tools":{"name":"look"}}}}}`, `{"execute":{"llm":{"tools":[{"name":"look"}]}}}`,
	} {
		if err := (jsonCodec{}).Unmarshal([]byte(other), &agentdv1.RunRequest{}); err == nil {
			t.Errorf("%s: no error", other)
		}
	}
}

// Each message that leads to an agent is looked into.
func TestHoldsAgents(t *testing.T) {
	leads := map[protoreflect.FullName]bool{llmDescriptor.FullName(): true}
	for grown := true; grown; {
		grown = false
		for _, file := range []protoreflect.FileDescriptor{
			agentdv1.File_agentd_v1_service_proto, agentdv1.File_agentd_v1_types_proto, agentdv1.File_agentd_v1_sessions_proto,
		} {
			var visit func(protoreflect.MessageDescriptors)
			visit = func(all protoreflect.MessageDescriptors) {
				for i := range all.Len() {
					m := all.Get(i)
					visit(m.Messages())
					for j := range m.Fields().Len() {
						if next := m.Fields().Get(j).Message(); next != nil && leads[next.FullName()] && !leads[m.FullName()] {
							leads[m.FullName()], grown = true, true
						}
					}
				}
			}
			visit(file.Messages())
		}
	}
	for name := range leads {
		if !holdsAgents[name] {
			t.Errorf("%s is not looked into", name)
		}
	}
}
