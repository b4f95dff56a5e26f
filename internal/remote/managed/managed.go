// Package managed is a driver of backends that speak the Managed Agents API: HTTP and server-sent events. It is not for
// users of agentd.
package managed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/session/fault"
)

// Names of ours on the backend.
const (
	specKey     = "agentd_spec" // in the metadata of an agent: the hash of what it was made of
	sessionKey  = "agentd_key"  // in the metadata of a session
	environment = "agentd"      // the environment of our sessions
)

const (
	pageSize = 100
	maxPages = 200 // of a list in which something is looked for
	// eventPages is how many pages of events are read at most.
	eventPages, eventPageSize = 200, 1000
)

// Driver is a remote.Pusher.
type Driver struct {
	base string
	key  string
	http *remote.HTTP

	mu          sync.Mutex // protects environment
	environment string     // its id, once it is known
}

var _ remote.Pusher = (*Driver)(nil)

// New returns the driver of a backend at a URL. key is sent as X-Api-Key. A nil transport is one of its own.
func New(base, key string, transport http.RoundTripper) *Driver {
	return &Driver{base: strings.TrimRight(base, "/"), key: key, http: remote.NewHTTP(transport, key)}
}

// Check implements remote.Driver.
func (*Driver) Check(s remote.Spec) error {
	if s.Model == "" {
		return errors.New("the model is missing: a backend of this kind has none of its own")
	}
	return nil
}

// request makes a request of the API.
func (d *Driver) request(ctx context.Context, method, path string, query url.Values, body any) (*http.Request, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	if query == nil {
		query = url.Values{}
	}
	query.Set("beta", "true")
	req, err := http.NewRequestWithContext(ctx, method, d.base+path+"?"+query.Encode(), bytes.NewReader(data))
	if err != nil {
		return nil, &remote.Error{Code: fault.Invalid, Message: "the backend's URL is none"}
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Set("Anthropic-Beta", "managed-agents-2026-04-01")
	if d.key != "" {
		req.Header.Set("X-Api-Key", d.key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

func (d *Driver) get(ctx context.Context, path string, query url.Values, out any) error {
	req, err := d.request(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	return d.http.JSON(req, out)
}

func (d *Driver) send(ctx context.Context, path string, body, out any) error {
	req, err := d.request(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return err
	}
	return d.http.JSON(req, out)
}

// object is what agents, environments and sessions have in common.
type object struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Metadata   map[string]string `json:"metadata"`
	ArchivedAt *string           `json:"archived_at"`
}

// find looks for an object in a list, page by page; "" for none.
func (d *Driver) find(ctx context.Context, path string, query url.Values, is func(object) bool) (string, error) {
	query.Set("limit", fmt.Sprint(pageSize))
	for range maxPages {
		var page struct {
			Data     []object `json:"data"`
			NextPage *string  `json:"next_page"`
		}
		if err := d.get(ctx, path, query, &page); err != nil {
			return "", err
		}
		for _, o := range page.Data {
			if o.ArchivedAt == nil && is(o) {
				return o.ID, nil
			}
		}
		if page.NextPage == nil || *page.NextPage == "" {
			return "", nil
		}
		query.Set("page", *page.NextPage)
	}
	return "", nil
}

// make makes an object unless find has it. Where another one makes it at the same time, it is looked for again.
func (d *Driver) make(
	ctx context.Context, path string, body any, find func() (string, error),
) (id string, err error) {
	if id, err = find(); id != "" || err != nil {
		return id, err
	}
	var made object
	err = d.send(ctx, path, body, &made)
	if e, ok := errors.AsType[*remote.Error](err); ok && e.Code == fault.Conflict {
		if id, ferr := find(); id != "" || ferr != nil {
			return id, ferr
		}
	}
	if err == nil && made.ID == "" {
		err = &remote.Error{Code: fault.Unavailable, Message: "POST " + path + ": the reply has no id"}
	}
	return made.ID, err
}

// Provision implements remote.Driver. The environment, which all agents share, is made first, so that no agent is left
// behind without one.
func (d *Driver) Provision(ctx context.Context, name string, s remote.Spec) (string, error) {
	if _, err := d.environmentID(ctx); err != nil {
		return "", err
	}
	hash := s.Hash()
	tools := []map[string]any{}
	for _, t := range s.Tools {
		tools = append(tools, map[string]any{
			"type": "custom", "name": t.Name, "description": t.Description, "input_schema": schemaOf(t.Schema),
		})
	}
	body := map[string]any{
		"name": name, "model": map[string]string{"id": s.Model}, "system": s.Instruction, "tools": tools,
		"metadata": map[string]string{specKey: hash},
	}
	return d.make(ctx, "/v1/agents", body, func() (string, error) {
		return d.find(ctx, "/v1/agents", url.Values{}, func(o object) bool {
			return o.Name == name && o.Metadata[specKey] == hash
		})
	})
}

// schemaOf returns a schema as the API takes it, which has to be one of an object.
func schemaOf(schema json.RawMessage) map[string]any {
	out := map[string]any{}
	if json.Unmarshal(schema, &out) != nil || len(out) == 0 {
		out = map[string]any{"properties": map[string]any{}}
	}
	out["type"] = "object"
	return out
}

func (d *Driver) environmentID(ctx context.Context) (string, error) {
	d.mu.Lock()
	id := d.environment
	d.mu.Unlock()
	if id != "" {
		return id, nil
	}
	body := map[string]any{"name": environment, "config": map[string]string{"type": "cloud"}}
	id, err := d.make(ctx, "/v1/environments", body, func() (string, error) {
		return d.find(ctx, "/v1/environments", url.Values{}, func(o object) bool { return o.Name == environment })
	})
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	d.environment = id
	d.mu.Unlock()
	return id, nil
}

// Open implements remote.Driver.
func (d *Driver) Open(ctx context.Context, s remote.Session, again bool) (string, error) {
	key := s.Key.ID()
	if again {
		id, err := d.find(ctx, "/v1/sessions", url.Values{"agent_id": {s.Agent}}, func(o object) bool {
			return o.Metadata[sessionKey] == key
		})
		if id != "" || err != nil {
			return id, err
		}
	}
	env, err := d.environmentID(ctx)
	if err != nil {
		return "", err
	}
	var made object
	err = d.send(ctx, "/v1/sessions", map[string]any{
		"agent": s.Agent, "environment_id": env, "metadata": map[string]string{sessionKey: key},
	}, &made)
	if err == nil && made.ID == "" {
		err = &remote.Error{Code: fault.Unavailable, Message: "POST /v1/sessions: the reply has no id"}
	}
	return made.ID, err
}

func sessionPath(s remote.Session) string { return "/v1/sessions/" + url.PathEscape(s.ID) }

// Close implements remote.Driver: it interrupts what runs, and archives the session.
func (d *Driver) Close(ctx context.Context, s remote.Session) error {
	path := sessionPath(s)
	if s.Over {
		err := d.send(ctx, path+"/archive", struct{}{}, nil)
		if e, ok := errors.AsType[*remote.Error](err); ok && e.Code == fault.NotFound {
			return nil
		}
		return err
	}
	var now struct {
		Status     string  `json:"status"`
		ArchivedAt *string `json:"archived_at"`
	}
	err := d.get(ctx, path, nil, &now)
	switch e, ok := errors.AsType[*remote.Error](err); {
	case ok && e.Code == fault.NotFound, err == nil && now.ArchivedAt != nil:
		return nil
	case err != nil:
		return err
	}
	// A session that waits for results is idle; it is interrupted too, so that it takes none any more.
	if err := d.post(ctx, s, []any{map[string]string{"type": "user.interrupt"}}); err != nil {
		return err
	}
	return d.send(ctx, path+"/archive", struct{}{}, nil)
}

// Send implements remote.Pusher.
func (d *Driver) Send(ctx context.Context, s remote.Session, in remote.Input) error {
	var events []any
	for _, id := range in.Denied {
		events = append(events, map[string]string{
			"type": "user.tool_confirmation", "tool_use_id": id, "result": "deny",
			"deny_message": "nobody is there to approve it",
		})
	}
	for _, r := range in.Results {
		events = append(events, map[string]any{
			"type": "user.custom_tool_result", "custom_tool_use_id": r.Call.ID, "is_error": r.Error,
			"content": texts(r.Text),
		})
	}
	if in.Message != "" {
		events = append(events, map[string]any{"type": "user.message", "content": texts(in.Message)})
	}
	return d.post(ctx, s, events)
}

func texts(text string) []map[string]string {
	return []map[string]string{{"type": "text", "text": text}}
}

func (d *Driver) post(ctx context.Context, s remote.Session, events []any) error {
	return d.send(ctx, sessionPath(s)+"/events", map[string]any{"events": events}, nil)
}

// List implements remote.Pusher.
func (d *Driver) List(ctx context.Context, s remote.Session, take func(remote.Event) error) error {
	query := url.Values{"limit": {fmt.Sprint(eventPageSize)}, "order": {"asc"}}
	after := s.Cursor == ""
	for range eventPages {
		var page struct {
			Data     []json.RawMessage `json:"data"`
			NextPage *string           `json:"next_page"`
		}
		if err := d.get(ctx, sessionPath(s)+"/events", query, &page); err != nil {
			return err
		}
		for _, data := range page.Data {
			ev, id := read(data)
			if !after {
				after = id == s.Cursor
				continue
			}
			if err := take(ev); err != nil {
				return err
			}
		}
		if page.NextPage == nil || *page.NextPage == "" {
			if !after {
				return &remote.Error{Code: fault.Unavailable,
					Message: fmt.Sprintf("the session has no event %q any more", s.Cursor)}
			}
			return nil
		}
		query.Set("page", *page.NextPage)
	}
	return &remote.Error{Code: fault.LimitExceeded,
		Message: fmt.Sprintf("the session has more than %d events", eventPages*eventPageSize)}
}

// Connect implements remote.Pusher.
func (d *Driver) Connect(ctx context.Context, s remote.Session) (remote.Stream, error) {
	req, err := d.request(ctx, http.MethodGet, sessionPath(s)+"/events/stream", nil, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := d.http.Do(req) //nolint:bodyclose // the stream closes it
	if err != nil {
		return nil, err
	}
	return newStream(ctx, d.http, resp.Body), nil
}
