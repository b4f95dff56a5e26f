package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of what a Ledger keeps for callers.
var (
	// ErrNoAgent means that there is no agent, or no version of it, of this name.
	ErrNoAgent = errors.New("there is no such agent")
	// ErrAgentArchived means that the agent is archived.
	ErrAgentArchived = errors.New("the agent is archived")
	// ErrNoObject means that there is no object of this id.
	ErrNoObject = errors.New("there is no such object")
	// ErrTooMany means that there are as many as there may be.
	ErrTooMany = errors.New("there are as many as there may be")
)

// ChangedError means that what is to be changed is not what the caller has read.
type ChangedError struct {
	Version int64 // that there is; 0 for none
}

// Error says which version there is.
func (e *ChangedError) Error() string { return fmt.Sprintf("the version is %d", e.Version) }

// AnyVersion is a version that a caller accepts whatever it is.
const AnyVersion = -1

// Agent is one version of an agent tree that callers name.
type Agent struct {
	Tenant, Name string
	// Version is 1 for the first one of the name, and one more for each that follows.
	Version int64
	// Hash stands for Content, which the ledger does not read.
	Hash    string
	Content []byte
	// Maker is the id of the principal who made this version, Created when.
	Maker   string
	Created time.Time
	// First is when the first version of the name was made, Archived when the agent was archived, zero if it is not.
	First, Archived time.Time
}

// AgentQuery selects agents of a tenant.
type AgentQuery struct {
	Tenant string
	// Name selects all versions of one agent, also of one that is archived; "" the newest version of each.
	Name string
	// Archived selects those that are archived too.
	Archived bool
	// After is the last one of the page before, of which First, Name and Version count; nil for the first page.
	After *Agent
	// Limit is how many there are at most.
	Limit int
}

// Object is what a face keeps that no session has.
type Object struct {
	Tenant, Face, Kind, ID string
	// Version rises by one with each change.
	Version int64
	Data    []byte
	// Maker is the id of the principal who made it.
	Maker string
}

// Agents keeps agent trees that callers name.
type Agents interface {
	// AddAgent makes the newest version of an agent be what a says, which needs no Version, First and Archived, and
	// returns it, and whether it was made: the newest one may be so already. read is the newest version as the caller
	// knows it, 0 for none, or AnyVersion; another one is a *ChangedError. There are at most names agents of a tenant
	// and versions of a name, else ErrTooMany; an archived agent is ErrAgentArchived.
	AddAgent(ctx context.Context, a Agent, read int64, names, versions int) (_ Agent, made bool, err error)
	// Agent returns a version of an agent, 0 for the newest one, or of a version whose Hash begins with a prefix, or
	// ErrNoAgent.
	Agent(ctx context.Context, tenant, name string, version int64, prefix string) (Agent, error)
	// Agents returns agents, newest first: by First and name, and by version.
	Agents(ctx context.Context, q AgentQuery) ([]Agent, error)
	// ArchiveAgent notes when an agent was archived, and returns its newest version. One that is archived stays so.
	ArchiveAgent(ctx context.Context, tenant, name string, at time.Time) (Agent, error)
	// RemoveAgent removes an agent with all versions, or returns ErrNoAgent.
	RemoveAgent(ctx context.Context, tenant, name string) error
	// RemoveAgentsOf removes the agents of a tenant and returns how many; if user is not "", it forgets who made them
	// instead, and returns 0.
	RemoveAgentsOf(ctx context.Context, tenant, user string) (int, error)
}

// Objects keeps objects of faces.
type Objects interface {
	// PutObject sets an object, and returns its version. o.Version is that which the caller has read, 0 for a new one;
	// another one is a *ChangedError. A face has at most most objects of a tenant, else ErrTooMany.
	PutObject(ctx context.Context, o Object, most int) (version int64, err error)
	// Object returns an object, or ErrNoObject; of o the names count.
	Object(ctx context.Context, o Object) (Object, error)
	// Objects returns objects of a kind by their ids, those after o.ID.
	Objects(ctx context.Context, o Object, limit int) ([]Object, error)
	// ObjectsOf returns objects of a tenant, or those that its user has made if that is not "", by face, kind and id,
	// those after an object.
	ObjectsOf(ctx context.Context, user string, after Object, limit int) ([]Object, error)
	// RemoveObject removes an object, or returns ErrNoObject.
	RemoveObject(ctx context.Context, o Object) error
	// RemoveObjectsOf removes the objects of a tenant, or those that its user has made if that is not "".
	RemoveObjectsOf(ctx context.Context, tenant, user string) (int, error)
}
