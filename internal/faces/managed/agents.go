package managed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// An agent of the protocol is a registered agent, whose name is the id. What a tree has no place for is in its
// metadata. Any registered agent is one of the protocol too, read only: its id is its name.

const (
	conflict     = agentdv1.ErrorCode_ERROR_CODE_CONFLICT
	notFound     = agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND
	noSession    = agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND
	maxTries     = 8   // of a change that meets another one
	maxAgentPage = 100 // of a list of agents
	agentPage    = 20
	maxTools     = 256
	maxRoster    = 64
	maxName      = 256
	maxText      = 1 << 20
)

// agentNote is the metadata of a registered agent.
type agentNote struct {
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Roster are the agents of a coordinator. Node is what each is called in the tree.
	Roster []rosterNote `json:"roster,omitempty"`
	// Of is the agent of a session that has changed it for itself: such an agent is not listed.
	Of *agentRef `json:"of,omitempty"`
}

type rosterNote struct {
	ID      string `json:"id"`
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Node    string `json:"node"`
}

// noteKey is where the metadata has the note.
const noteKey = "managed_agents"

// noteOf reads a note; nil for an agent, or a session, that this face has not made.
func noteOf[T any](metadata *structpb.Struct) *T {
	v, ok := metadata.GetFields()[noteKey]
	if !ok {
		return nil
	}
	data, err := v.MarshalJSON()
	out := new(T)
	if err != nil || json.Unmarshal(data, out) != nil {
		return nil
	}
	return out
}

// metadataOf is a note as metadata.
func metadataOf(note any) *structpb.Struct {
	v := &structpb.Value{}
	_ = v.UnmarshalJSON(marshal(note)) // of JSON
	return &structpb.Struct{Fields: map[string]*structpb.Value{noteKey: v}}
}

// definition is what an agent is to be.
type definition struct {
	name, model, system, description string
	tools                            []toolObject
	roster                           []agentRef
	metadata                         map[string]string
}

// read applies the fields of a request to a definition.
func (d *definition) read(in *input) {
	if in.has("name") {
		d.name = in.must("name", maxName)
	}
	d.readOverrides(in)
	if in.has("description") {
		d.description = in.text("description", maxText)
	}
	if in.has("multiagent") {
		d.roster = readRoster(in)
	}
	d.metadata = in.metadata(d.metadata)
	in.unsupported("mcp_servers", "skills")
}

// readOverrides applies what a session may change too.
func (d *definition) readOverrides(in *input) {
	if in.has("model") {
		d.model = readModel(in)
	}
	if in.has("system") {
		d.system = in.text("system", maxText)
	}
	if in.has("tools") {
		d.tools = readTools(in)
	}
}

// readModel reads a model: its name, or an object with its name.
func readModel(in *input) string {
	if kindOf(in.fields["model"]) == "a string" {
		return in.must("model", maxName)
	}
	m := in.object("model")
	if m == nil {
		in.failf("model", `is missing, want {"id": "NAME"}`)
		return ""
	}
	id := m.must("id", maxName)
	m.unsupported("effort", "speed", "inference_geo")
	_ = m.done() // in keeps the error
	return id
}

// readTools reads custom tools, the only ones that there are.
func readTools(in *input) (out []toolObject) {
	for _, t := range in.objects("tools", maxTools) {
		kind := t.must("type", maxName)
		if kind != "custom" {
			t.failf("type", "is %.80q, want \"custom\": this server has no tools of its own", kind)
		}
		tool := toolObject{Type: "custom", Name: t.must("name", maxName), Description: t.must("description", maxText)}
		schema := t.raw("input_schema")
		if s := t.object("input_schema"); s == nil {
			t.failf("input_schema", `is missing, want an object with "type": "object"`)
		} else {
			s.one("type", "object")
		}
		tool.InputSchema = compact(schema)
		_ = t.done() // in keeps the error
		if slices.ContainsFunc(out, func(o toolObject) bool { return o.Name == tool.Name }) {
			t.failf("name", "is %q, as that of another tool: each has its own", tool.Name)
		}
		out = append(out, tool)
	}
	return out
}

// readRoster reads the roster of a coordinator, none for null.
func readRoster(in *input) (out []agentRef) {
	m := in.object("multiagent")
	if m == nil {
		return nil
	}
	m.one("type", "coordinator")
	for i, raw := range m.list("agents", maxRoster) {
		at := "agents[" + strconv.Itoa(i) + "]"
		if kindOf(raw) == "a string" {
			var id string
			_ = json.Unmarshal(raw, &id) // a string
			out = append(out, agentRef{Type: "agent", ID: id})
			continue
		}
		a := m.below(at, raw)
		a.one("type", "agent")
		out = append(out, agentRef{Type: "agent", ID: a.must("id", maxName), Version: a.number("version", 1)})
		_ = a.done() // in keeps the error
	}
	if len(out) == 0 {
		m.failf("agents", "is empty, want the ids of agents")
	}
	_ = m.done()
	return out
}

// agentID is the id of the nth agent of this content.
func agentID(content []byte, n int) string {
	sum := sha256.Sum256(append(content, '#', byte('0'+n)))
	return "agent_" + hex.EncodeToString(sum[:12])
}

func (f *face) createAgent(r *http.Request) (any, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	var d definition
	in.must("name", maxName)
	in.raw("model")
	if in.absent("model") {
		in.failf("model", `is missing, want {"id": "NAME"}`)
	}
	d.read(in)
	if err := in.done(); err != nil {
		return nil, err
	}
	ctx := r.Context()
	b, err := f.build(ctx, &d)
	if err != nil {
		return nil, err
	}
	content := marshal([]any{d.name, d.model, d.system, d.description, d.tools, b.note})
	for n := range maxTries { // an agent that was made of the same and is another one by now keeps its id
		req := b.request(agentID(content, n), metadataOf(b.note))
		req.Version = new(int64)
		resp, err := f.env.Sessions.ApplyAgent(ctx, connect.NewRequest(req))
		if err == nil {
			return agentObjectOf(resp.Msg.GetAgent()), nil
		}
		if !f.isCode(err, conflict) {
			return nil, err
		}
		got, err := f.agent(ctx, req.GetName(), 0)
		switch {
		case f.isCode(err, notFound):
		case err != nil:
			return nil, err
		case got.GetArchiveTime() == nil && b.is(got):
			return agentObjectOf(got), nil
		}
	}
	return nil, badf("there are %d agents that were made of the same and have changed since: update one of them",
		maxTries)
}

// agent returns a version of an agent, 0 for the newest.
func (f *face) agent(ctx context.Context, id string, version int64) (*agentdv1.RegisteredAgent, error) {
	resp, err := f.env.Sessions.GetAgent(ctx, connect.NewRequest(&agentdv1.GetAgentRequest{
		AgentRef: &agentdv1.AgentRef{Name: id, Version: version},
	}))
	if err != nil {
		return nil, err
	}
	return resp.Msg.GetAgent(), nil
}

func (f *face) getAgent(r *http.Request) (any, error) {
	q := queryOf(r)
	version := q.number("version", 1<<53, 0)
	if err := q.done(); err != nil {
		return nil, err
	}
	a, err := f.agent(r.Context(), r.PathValue("id"), version)
	if err != nil {
		return nil, err
	}
	return agentObjectOf(a), nil
}

func (f *face) updateAgent(r *http.Request) (any, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	ctx, id := r.Context(), r.PathValue("id")
	asked := in.number("version", 1)
	for range maxTries {
		before, err := f.agent(ctx, id, 0)
		if err != nil {
			return nil, err
		}
		note := noteOf[agentNote](before.GetMetadata())
		if note == nil || note.Of != nil {
			return nil, badf("agent %.80q was not made by this protocol: change it where it was made", id)
		}
		if asked != 0 && before.GetVersion() != asked {
			return nil, &failure{status: http.StatusConflict, message: "version is " + strconv.FormatInt(asked, 10) +
				", the agent has version " + strconv.FormatInt(before.GetVersion(), 10) + ": read it again"}
		}
		d := definitionOf(before)
		d.read(in)
		if err := in.done(); err != nil {
			return nil, err
		}
		b, err := f.build(ctx, &d)
		if err != nil {
			return nil, err
		}
		req := b.request(id, metadataOf(b.note))
		version := before.GetVersion()
		req.Version = &version
		resp, err := f.env.Sessions.ApplyAgent(ctx, connect.NewRequest(req))
		if err == nil {
			return agentObjectOf(resp.Msg.GetAgent()), nil
		}
		if !f.isCode(err, conflict) || asked != 0 {
			return nil, err
		}
	}
	return nil, &failure{status: http.StatusConflict, message: "the agent was changed at the same time: read it again"}
}

func (f *face) archiveAgent(r *http.Request) (any, error) {
	resp, err := f.env.Sessions.ArchiveAgent(r.Context(),
		connect.NewRequest(&agentdv1.ArchiveAgentRequest{Name: r.PathValue("id")}))
	if err != nil {
		return nil, err
	}
	return agentObjectOf(resp.Msg.GetAgent()), nil
}

func (f *face) listAgents(r *http.Request) (any, error) {
	q := queryOf(r)
	req := &agentdv1.ListAgentsRequest{
		PageSize: int32(q.number("limit", maxAgentPage, agentPage)), PageToken: q.text("page"),
		Archived: q.flag("include_archived"),
	}
	within := q.created("gte", "lte")
	if err := q.done(); err != nil {
		return nil, err
	}
	return f.agentsPage(r.Context(), req, func(a *agentdv1.RegisteredAgent) bool {
		note := noteOf[agentNote](a.GetMetadata())
		return (note == nil || note.Of == nil) && within.has(a.GetFirstCreateTime().AsTime())
	})
}

func (f *face) listVersions(r *http.Request) (any, error) {
	q := queryOf(r)
	req := &agentdv1.ListAgentsRequest{
		PageSize: int32(q.number("limit", maxAgentPage, agentPage)), PageToken: q.text("page"),
		Archived: true, Name: r.PathValue("id"),
	}
	if err := q.done(); err != nil {
		return nil, err
	}
	if _, err := f.agent(r.Context(), req.GetName(), 0); err != nil {
		return nil, err
	}
	return f.agentsPage(r.Context(), req, func(*agentdv1.RegisteredAgent) bool { return true })
}

// agentsPage returns a page of agents that are wanted. It is shorter than asked where others are between them.
func (f *face) agentsPage(
	ctx context.Context, req *agentdv1.ListAgentsRequest, wanted func(*agentdv1.RegisteredAgent) bool,
) (any, error) {
	for {
		resp, err := f.env.Sessions.ListAgents(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		var data []any
		for _, a := range resp.Msg.GetAgents() {
			if wanted(a) {
				data = append(data, agentObjectOf(a))
			}
		}
		req.PageToken = resp.Msg.GetNextPageToken()
		if len(data) > 0 || req.GetPageToken() == "" {
			return pageOf(data, req.GetPageToken()), nil
		}
	}
}
