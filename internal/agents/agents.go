// Package agents is a part of agentd, not an API: the agent trees that callers have a server keep, by name, in versions
// that do not change.
//
// What an agent says is kept as JSON text and told apart by its SHA-256. Who may do what is the server's to say; the
// tenant and the principal are those of the context. It knows neither requests, nor sessions, nor SQL.
package agents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// maxNames is how many agents a tenant may have, maxVersions how many versions an agent.
	maxNames    = 10_000
	maxVersions = 10_000
	// maxMetadata bounds the metadata of an agent, in bytes.
	maxMetadata = 16 << 10
	// leastDigits is how many digits of a content hash a reference has at least.
	leastDigits = 8
	// readAtOnce is how many agents of a list are read at once, pageBytes about how large a page may be.
	readAtOnce = 16
	pageBytes  = 1 << 20
	// timesKept is what a ledger keeps of a time.
	timesKept = time.Microsecond
)

var (
	names  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	digits = regexp.MustCompile(`^[0-9a-f]{8,64}$`)
)

// Config is what a Registry works with.
type Config struct {
	// Ledger keeps the agents; required.
	Ledger ledger.Agents
	// Check refuses a tree that no turn may run, for the principal of the context; required.
	Check func(ctx context.Context, spec *record.Spec) error
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Registry keeps agents. Its methods may be called from any goroutine. An error that a client may see is a
// *fault.Error.
type Registry struct{ cfg Config }

// New returns a registry.
func New(cfg Config) *Registry {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Registry{cfg}
}

// Check refuses a tree that no turn may run, for the principal of the context.
func (r *Registry) Check(ctx context.Context, spec *record.Spec) error { return r.cfg.Check(ctx, spec) }

// content is what an agent says, as it is kept.
type content struct {
	Agent    json.RawMessage   `json:"agent"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
	Metadata json.RawMessage   `json:"metadata,omitempty"`
}

// Apply makes an agent be what the request says, and returns its newest version, and whether it is new. metadata is
// that of the request as JSON text, "" for none.
func (r *Registry) Apply(
	ctx context.Context, req *agentdv1.ApplyAgentRequest, metadata string,
) (*agentdv1.RegisteredAgent, bool, error) {
	switch name := req.GetName(); {
	case !names.MatchString(name):
		return nil, false, fault.Errorf(fault.Invalid,
			"name: an agent is called by 1 to 128 of A-Z, a-z, 0-9 and . _ : -, a letter or a digit first "+
				"(received %.200q)", name).
			Breaking("name", fault.RuleFormat)
	case len(metadata) > maxMetadata:
		return nil, false, fault.Errorf(fault.LimitExceeded, "metadata takes %d bytes as JSON, at most %d are allowed",
			len(metadata), maxMetadata).
			Breaking("metadata", fault.RuleRange).Over("metadata_bytes", maxMetadata, len(metadata))
	}
	spec := &record.Spec{
		Agent: proto.CloneOf(req.GetAgent()), Tools: req.GetTools(), Tenant: principal.Of(ctx).Tenant,
	}
	if err := r.cfg.Check(ctx, spec); err != nil {
		return nil, false, err
	}
	text, err := encode(req.GetAgent(), req.GetTools(), metadata)
	if err != nil {
		return nil, false, fault.Errorf(fault.Invalid, "agent: %v", err).Breaking("agent", fault.RuleFormat)
	}
	sum := sha256.Sum256(text)
	by := principal.Of(ctx)
	read := int64(ledger.AnyVersion)
	if req.Version != nil {
		read = req.GetVersion()
	}
	add := r.cfg.Ledger.AddAgent
	if req.GetDryRun() {
		add = r.wouldAdd
	}
	a, made, err := add(ctx, ledger.Agent{
		Tenant: by.Tenant, Name: req.GetName(), Hash: hex.EncodeToString(sum[:]), Content: text,
		Maker: by.ID, Created: r.cfg.Now().UTC().Truncate(timesKept),
	}, read, maxNames, maxVersions)
	if changed, ok := errors.AsType[*ledger.ChangedError](err); ok {
		return nil, false, fault.Errorf(fault.Conflict, "agent %q has version %d, not %d: read it again",
			req.GetName(), changed.Version, read).
			Breaking("version", fault.RuleConflict)
	}
	if errors.Is(err, ledger.ErrTooMany) {
		return nil, false, fault.Errorf(fault.LimitExceeded,
			"there are %d agents, or versions of %q, as many as there may be: delete some", maxNames, req.GetName()).
			Over("agents", maxNames, maxNames+1)
	}
	if err != nil {
		return nil, false, refusal(err, req.GetName())
	}
	out, err := told(&a)
	return out, made, err
}

// wouldAdd is AddAgent of the ledger without a change.
func (r *Registry) wouldAdd(
	ctx context.Context, a ledger.Agent, read int64, _, _ int,
) (_ ledger.Agent, made bool, err error) {
	now, err := r.cfg.Ledger.Agent(ctx, a.Tenant, a.Name, 0, "")
	if err != nil && !errors.Is(err, ledger.ErrNoAgent) {
		return a, false, err
	}
	return now.Next(a, read)
}

// Get returns a version of an agent.
func (r *Registry) Get(ctx context.Context, ref *agentdv1.AgentRef) (*agentdv1.RegisteredAgent, error) {
	a, err := r.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return told(a)
}

// Tree is session.Config.Agent.
func (r *Registry) Tree(
	ctx context.Context, ref *agentdv1.AgentRef, made bool,
) (*record.Spec, *agentdv1.AgentRef, error) {
	a, err := r.find(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	if !a.Archived.IsZero() && !made {
		return nil, nil, refusal(ledger.ErrAgentArchived, a.Name)
	}
	spec := new(record.Spec)
	if spec.Agent, spec.Tools, _, err = decode(a); err != nil {
		return nil, nil, err
	}
	return spec, &agentdv1.AgentRef{Name: a.Name, Version: a.Version}, nil
}

func (r *Registry) find(ctx context.Context, ref *agentdv1.AgentRef) (*ledger.Agent, error) {
	name, prefix, byHash := strings.Cut(ref.GetName(), "@")
	switch {
	case byHash && !digits.MatchString(prefix):
		return nil, fault.Errorf(fault.Invalid,
			"agent_ref.name %.300q: behind @ are the first %d to 64 digits of a content_hash, in small letters",
			ref.GetName(), leastDigits).
			Breaking("agent_ref.name", fault.RuleFormat)
	case byHash && ref.GetVersion() != 0:
		return nil, fault.Errorf(fault.Invalid,
			"agent_ref.version together with a content_hash in its name: leave out one of them").
			Breaking("agent_ref.version", fault.RuleExcluded)
	}
	a, err := r.cfg.Ledger.Agent(ctx, principal.Of(ctx).Tenant, name, ref.GetVersion(), prefix)
	if errors.Is(err, ledger.ErrNoAgent) {
		text := fmt.Sprintf("there is no agent %.300q", ref.GetName())
		if ref.GetVersion() != 0 {
			text = fmt.Sprintf("agent %.300q has no version %d", ref.GetName(), ref.GetVersion())
		}
		return nil, fault.Errorf(fault.NotFound, "%s; ApplyAgent makes one", text)
	}
	return &a, err
}

// List returns a page of agents, newest first, or of the versions of one that has a name, and what the next page
// begins with, "" for none.
func (r *Registry) List(
	ctx context.Context, req *agentdv1.ListAgentsRequest, limit int,
) (all []*agentdv1.RegisteredAgent, next string, err error) {
	q := ledger.AgentQuery{
		Tenant: principal.Of(ctx).Tenant, Name: req.GetName(), Archived: req.GetArchived(), Limit: readAtOnce,
	}
	if q.After, err = after(req); err != nil {
		return nil, "", err
	}
	for size := 0; ; {
		found, err := r.cfg.Ledger.Agents(ctx, q)
		if err != nil {
			return nil, "", err
		}
		for i := range found {
			if size += len(found[i].Content); len(all) == limit || len(all) > 0 && size > pageBytes {
				return all, token(req, q.After), nil
			}
			a, err := told(&found[i])
			if err != nil {
				return nil, "", err
			}
			all, q.After = append(all, a), &found[i]
		}
		if len(found) < readAtOnce {
			return all, "", nil
		}
	}
}

// Archive archives an agent and returns its newest version.
func (r *Registry) Archive(ctx context.Context, name string) (*agentdv1.RegisteredAgent, error) {
	a, err := r.cfg.Ledger.ArchiveAgent(ctx, principal.Of(ctx).Tenant, name, r.cfg.Now().UTC().Truncate(timesKept))
	if err != nil {
		return nil, refusal(err, name)
	}
	return told(&a)
}

// Delete removes an agent.
func (r *Registry) Delete(ctx context.Context, name string) error {
	if err := r.cfg.Ledger.RemoveAgent(ctx, principal.Of(ctx).Tenant, name); err != nil {
		return refusal(err, name)
	}
	return nil
}

// refusal is the error of a ledger as a client reads it.
func refusal(err error, name string) error {
	switch {
	case errors.Is(err, ledger.ErrNoAgent):
		return fault.Errorf(fault.NotFound, "there is no agent %.300q; ApplyAgent makes one", name)
	case errors.Is(err, ledger.ErrAgentArchived):
		return fault.Errorf(fault.Precondition, "agent %.300q is archived: use another one", name)
	}
	return err
}

// pageToken is the last agent of a page, and of which list.
type pageToken struct {
	List    string `json:"l,omitempty"` // the name of which versions are listed
	All     bool   `json:"a,omitempty"`
	First   int64  `json:"f,omitempty"`
	Name    string `json:"n"`
	Version int64  `json:"v"`
}

func token(req *agentdv1.ListAgentsRequest, last *ledger.Agent) string {
	text, err := json.Marshal(pageToken{
		req.GetName(), req.GetArchived(), last.First.UnixNano(), last.Name, last.Version,
	})
	if err != nil { // not reached: texts and numbers can be written
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func after(req *agentdv1.ListAgentsRequest) (*ledger.Agent, error) {
	if req.GetPageToken() == "" {
		return nil, nil
	}
	var t pageToken
	text, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil || t.List != req.GetName() || t.All != req.GetArchived() {
		return nil, fault.Errorf(fault.Invalid,
			"page_token is not of this request: send the next_page_token of the page before, and nothing else changed").
			Breaking("page_token", fault.RuleFormat)
	}
	return &ledger.Agent{Name: t.Name, Version: t.Version, First: time.Unix(0, t.First)}, nil
}

// encode is what an agent says as it is kept. It must not change from one version of agentd to the next: its SHA-256
// tells whether an agent has changed.
func encode(agent *agentdv1.Agent, tools []*agentdv1.Tool, metadata string) ([]byte, error) {
	c := content{Metadata: json.RawMessage(metadata)}
	var err error
	if c.Agent, err = plain(agent); err != nil {
		return nil, err
	}
	for _, t := range tools {
		text, err := plain(t)
		if err != nil {
			return nil, err
		}
		c.Tools = append(c.Tools, text)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err = enc.Encode(c)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// plain is the JSON of a message without the spaces that protojson varies.
func plain(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Compact(&b, text)
	return b.Bytes(), err
}

func decode(a *ledger.Agent) (*agentdv1.Agent, []*agentdv1.Tool, *structpb.Struct, error) {
	var c content
	within := func(err error) error { return fmt.Errorf("agent %q, version %d: %w", a.Name, a.Version, err) }
	if err := json.Unmarshal(a.Content, &c); err != nil {
		return nil, nil, nil, within(err)
	}
	agent := new(agentdv1.Agent)
	if err := protojson.Unmarshal(c.Agent, agent); err != nil {
		return nil, nil, nil, within(err)
	}
	var tools []*agentdv1.Tool
	for _, text := range c.Tools {
		t := new(agentdv1.Tool)
		if err := protojson.Unmarshal(text, t); err != nil {
			return nil, nil, nil, within(err)
		}
		tools = append(tools, t)
	}
	if len(c.Metadata) == 0 {
		return agent, tools, nil, nil
	}
	metadata := new(structpb.Struct)
	if err := protojson.Unmarshal(c.Metadata, metadata); err != nil {
		return nil, nil, nil, within(err)
	}
	return agent, tools, metadata, nil
}

// told is an agent as clients read it.
func told(a *ledger.Agent) (*agentdv1.RegisteredAgent, error) {
	agent, tools, metadata, err := decode(a)
	if err != nil {
		return nil, err
	}
	out := &agentdv1.RegisteredAgent{
		Name: a.Name, Version: a.Version, ContentHash: a.Hash, Agent: agent, Tools: tools, Metadata: metadata,
		CreatedBy: a.Maker, CreateTime: timestamppb.New(a.Created), FirstCreateTime: timestamppb.New(a.First),
	}
	if !a.Archived.IsZero() {
		out.ArchiveTime = timestamppb.New(a.Archived)
	}
	return out, nil
}
