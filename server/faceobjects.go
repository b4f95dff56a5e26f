package server

import (
	"context"
	"errors"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

const (
	// maxObjects is how many objects a face may have of a tenant, maxObjectBytes how large one may be.
	maxObjects     = 10_000
	maxObjectBytes = 64 << 10
	// maxObjectName bounds the kind and the id of an object, in bytes.
	maxObjectName = 128
)

// faceObjects keeps what the protocol of a face has and agentd has not, such as the environments of a protocol that
// places its sessions in some: objects of at most 65,536 bytes by kind and id, texts of 1 to 128 bytes. Each face has
// its own, and each tenant, at most 10,000 of them. They do not change when a session does, and are not encrypted.
// Its methods need the context of a request, as Sessions does, and may be called from any goroutine; their errors are
// for FaceEnv.Error, which says 404 for an object that there is not, and 409 for a version that is not the last one.
type faceObjects struct {
	server *Server
	face   string
}

// ledger returns what keeps the objects, and the names of one.
func (o faceObjects) ledger(ctx context.Context, kind, id string) (ledger.Objects, ledger.Object, error) {
	all := o.server.now().Objects
	if all == nil {
		return nil, ledger.Object{}, connectError(fault.Errorf(codePrecondition, "this server keeps no objects"))
	}
	if kind == "" || len(kind) > maxObjectName || len(id) > maxObjectName {
		return nil, ledger.Object{}, connectError(fault.Errorf(codeInvalid,
			"the kind %.200q and the id %.200q of an object have at most %d bytes", kind, id, maxObjectName))
	}
	p := principal.Of(ctx)
	return all, ledger.Object{Tenant: p.Tenant, Face: o.face, Kind: kind, ID: id, Maker: p.ID}, nil
}

// told is an error as FaceEnv.Error reads it.
func (o faceObjects) told(err error, id string) error {
	if changed, ok := errors.AsType[*ledger.ChangedError](err); ok {
		return connectError(fault.Errorf(fault.Conflict, "object %.200q has version %d: read it again",
			id, changed.Version))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrNoObject):
		return connectError(fault.Errorf(fault.NotFound, "there is no object %.200q", id))
	case errors.Is(err, ledger.ErrTooMany):
		return connectError(fault.Errorf(codeLimit, "there are %d objects, as many as there may be: delete some",
			maxObjects).Over("objects", maxObjects, maxObjects+1))
	}
	return connectError(o.server.internal("objects of face "+o.face, err))
}

// Put sets an object and returns its version. version is the one that the caller has read, 0 for a new object.
func (o faceObjects) Put(ctx context.Context, kind, id string, version int64, data []byte) (now int64, err error) {
	all, at, err := o.ledger(ctx, kind, id)
	if err != nil {
		return 0, err
	}
	if id == "" || len(data) > maxObjectBytes {
		return 0, connectError(fault.Errorf(codeLimit, "object %.200q has %d bytes, at most %d are allowed, and an id",
			id, len(data), maxObjectBytes).Over("object_bytes", maxObjectBytes, len(data)))
	}
	at.Version, at.Data = version, data
	now, err = all.PutObject(ctx, at, maxObjects)
	return now, o.told(err, id)
}

// Get returns an object.
func (o faceObjects) Get(ctx context.Context, kind, id string) (data []byte, version int64, err error) {
	all, at, err := o.ledger(ctx, kind, id)
	if err != nil {
		return nil, 0, err
	}
	found, err := all.Object(ctx, at)
	return found.Data, found.Version, o.told(err, id)
}

// List returns at most limit objects of a kind in the order of their ids, those behind the id after.
func (o faceObjects) List(
	ctx context.Context, kind, after string, limit int,
) (ids []string, data [][]byte, err error) {
	all, at, err := o.ledger(ctx, kind, after)
	if err != nil {
		return nil, nil, err
	}
	found, err := all.Objects(ctx, at, limit)
	for i := range found {
		ids, data = append(ids, found[i].ID), append(data, found[i].Data)
	}
	return ids, data, o.told(err, "")
}

// Delete removes an object.
func (o faceObjects) Delete(ctx context.Context, kind, id string) error {
	all, at, err := o.ledger(ctx, kind, id)
	if err != nil {
		return err
	}
	return o.told(all.RemoveObject(ctx, at), id)
}
