package managed

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// An environment is kept, and has no effect: tools run where their runner is.

const (
	environmentKind    = "environment"
	maxEnvironmentPage = 100
)

// storedEnvironment is an environment as it is kept.
type storedEnvironment struct {
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Config      json.RawMessage   `json:"config"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Created     time.Time         `json:"created"`
	Updated     time.Time         `json:"updated"`
	Archived    time.Time         `json:"archived,omitzero"`
}

func (e *storedEnvironment) object(id string) environmentObject {
	out := environmentObject{
		ID: id, Type: "environment", Name: e.Name, Description: e.Description, Config: e.Config, Metadata: e.Metadata,
		CreatedAt: timeText(e.Created), UpdatedAt: timeText(e.Updated), ArchivedAt: timeText(e.Archived),
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	return out
}

// read applies the fields of a request.
func (e *storedEnvironment) read(in *input) {
	if in.has("name") {
		e.Name = in.must("name", maxName)
	}
	if in.has("description") {
		e.Description = in.text("description", 4096)
	}
	if raw := in.raw("config"); !in.absent("config") {
		in.object("config").one("type", "cloud")
		e.Config = compact(raw)
	}
	e.Metadata = in.metadata(e.Metadata)
	in.unsupported("scope")
}

// newEnvironmentID makes an id that stands before those made earlier.
func newEnvironmentID(now time.Time) string {
	return fmt.Sprintf("env_%016x%s", math.MaxInt64-now.UnixNano(), strings.ToLower(rand.Text()[:8]))
}

func (f *face) createEnvironment(r *http.Request) (any, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	e := &storedEnvironment{Config: json.RawMessage(`{"type":"cloud"}`), Created: now, Updated: now}
	in.must("name", maxName)
	e.read(in)
	if err := in.done(); err != nil {
		return nil, err
	}
	id := newEnvironmentID(now)
	if _, err := f.env.Objects.Put(r.Context(), environmentKind, id, 0, marshal(e)); err != nil {
		return nil, err
	}
	return e.object(id), nil
}

// environment returns an environment and its version.
func (f *face) environment(ctx context.Context, id string) (*storedEnvironment, int64, error) {
	data, version, err := f.env.Objects.Get(ctx, environmentKind, id)
	if f.isCode(err, notFound) || id == "" {
		return nil, 0, missingf("there is no environment %.80q", id)
	}
	if err != nil {
		return nil, 0, err
	}
	e := &storedEnvironment{}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, 0, fmt.Errorf("environment %s: %w", id, err)
	}
	return e, version, nil
}

// changeEnvironment changes an environment, once more if it was changed meanwhile.
func (f *face) changeEnvironment(
	ctx context.Context, id string, change func(*storedEnvironment) error,
) (any, error) {
	for try := 1; ; try++ {
		e, version, err := f.environment(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := change(e); err != nil {
			return nil, err
		}
		e.Updated = time.Now().UTC()
		_, err = f.env.Objects.Put(ctx, environmentKind, id, version, marshal(e))
		if err == nil {
			return e.object(id), nil
		}
		if !f.isCode(err, conflict) || try == maxTries {
			return nil, err
		}
	}
}

func (f *face) getEnvironment(r *http.Request) (any, error) {
	if err := queryOf(r).done(); err != nil {
		return nil, err
	}
	e, _, err := f.environment(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return e.object(r.PathValue("id")), nil
}

func (f *face) updateEnvironment(r *http.Request) (any, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("id")
	return f.changeEnvironment(r.Context(), id, func(e *storedEnvironment) error {
		if !e.Archived.IsZero() {
			return badf("environment %.80q is archived", id)
		}
		e.read(in)
		return in.done()
	})
}

func (f *face) archiveEnvironment(r *http.Request) (any, error) {
	return f.changeEnvironment(r.Context(), r.PathValue("id"), func(e *storedEnvironment) error {
		if e.Archived.IsZero() {
			e.Archived = time.Now().UTC()
		}
		return nil
	})
}

func (f *face) deleteEnvironment(r *http.Request) (any, error) {
	id := r.PathValue("id")
	if _, _, err := f.environment(r.Context(), id); err != nil {
		return nil, err
	}
	if err := f.env.Objects.Delete(r.Context(), environmentKind, id); err != nil &&
		!f.isCode(err, agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND) {
		return nil, err
	}
	return deletedObject{id, "environment_deleted"}, nil
}

func (f *face) listEnvironments(r *http.Request) (any, error) {
	q := queryOf(r)
	limit := int(q.number("limit", maxEnvironmentPage, agentPage))
	after, archived := q.text("page"), q.flag("include_archived")
	if err := q.done(); err != nil {
		return nil, err
	}
	var data []any
	for {
		ids, all, err := f.env.Objects.List(r.Context(), environmentKind, after, limit)
		if err != nil {
			return nil, err
		}
		for i, id := range ids {
			after = id
			e := &storedEnvironment{}
			if err := json.Unmarshal(all[i], e); err != nil {
				return nil, fmt.Errorf("environment %s: %w", id, err)
			}
			if archived || e.Archived.IsZero() {
				data = append(data, e.object(id))
			}
		}
		switch {
		case len(ids) < limit:
			return pageOf(data, ""), nil
		case len(data) > 0:
			return pageOf(data, after), nil
		}
	}
}
