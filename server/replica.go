package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// Servers over one store forward calls to the server that owns a session, over this protocol, in one hop. The first one
// judges the caller; the owner takes the principal from it if it shows the secret that the servers share. Headers with
// providers' keys go along.

const (
	headerSecret    = "Agentd-Replica-Secret" //nolint:gosec // the name of a header
	headerPrincipal = "Agentd-Replica-Principal"
	headerBy        = "Agentd-Replica-By" // the address of the server that forwards
	// headerMoved is in the trailer of a call that was forwarded to a server that does not have the session any more,
	// and has done nothing: who asks again finds the owner.
	headerMoved = "Agentd-Replica-Moved"
)

// caller is a principal as headerPrincipal has it, in base64 of JSON.
type caller struct {
	principal.Principal
	Role string
}

// forwardedKey has the address of the server that has forwarded a request, "" where that is too old to say it.
type forwardedKey struct{}

// isForwarded reports whether another server has forwarded the request of a context.
func isForwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// forwardedBy returns the address of that server, "" for none.
func forwardedBy(ctx context.Context) string {
	address, _ := ctx.Value(forwardedKey{}).(string)
	return address
}

// errNoReplica is why a request that claims to be forwarded is refused.
var errNoReplica = errors.New("it claims to be forwarded by another server, and does not show their secret")

// forwarder returns the principal of a request that another server has forwarded; is is false for any other.
func (s *Server) forwarder(r *http.Request) (p principal.Principal, is bool, err error) {
	shown := r.Header.Get(headerSecret)
	if s.now().ReplicaSecret == "" || shown == "" {
		return p, false, nil
	}
	is, want := true, sha256.Sum256([]byte(s.now().ReplicaSecret))
	got := sha256.Sum256([]byte(shown))
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return p, is, errNoReplica
	}
	var who caller
	data, err := base64.StdEncoding.DecodeString(r.Header.Get(headerPrincipal))
	if err == nil {
		err = json.Unmarshal(data, &who)
	}
	if err == nil {
		err = who.Principal.Role.UnmarshalText([]byte(who.Role))
	}
	return who.Principal, is, err
}

// forwards reports whether a call of a context may be forwarded.
func (s *Server) forwards(ctx context.Context) bool {
	return s.now().ReplicaClient != nil && !isForwarded(ctx)
}

// ownerIn returns the address of the owner that an error names, "" for none.
func ownerIn(err error) string {
	if e, ok := errors.AsType[*session.Elsewhere](err); ok {
		return e.Address
	}
	return ""
}

// headerEnded is in the trailer of a Run stream that was forwarded: why the owner has ended it before its turn, an
// ErrorResponse in base64. So errors that come as messages without a place are replies to what the client has sent.
const headerEnded = "Agentd-Replica-Ended"

// endForwarded says in the trailer of a stream that was forwarded why it ends.
func endForwarded(trailer http.Header, msg *agentdv1.RunResponse) {
	data, err := proto.Marshal(msg.GetError())
	if err == nil {
		trailer.Set(headerEnded, base64.StdEncoding.EncodeToString(data))
	}
}

// endedBy returns why the owner of a stream has ended it, nil if it has not said so.
func endedBy(trailer http.Header) *agentdv1.RunResponse {
	data, err := base64.StdEncoding.DecodeString(trailer.Get(headerEnded))
	said := &agentdv1.RunResponse_ErrorResponse{}
	if err != nil || len(data) == 0 || proto.Unmarshal(data, said) != nil {
		return nil
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: said}}
}

// hasMoved reports whether a trailer has headerMoved.
func hasMoved(trailer http.Header) bool { return trailer.Get(headerMoved) != "" }

// says reports whether an error of a call that was forwarded is to have headerMoved.
func (s *Server) says(ctx context.Context, err error) bool {
	if err == nil || !isForwarded(ctx) || session.IsUnsure(err) {
		return false
	}
	return roams(err) || errors.Is(err, errDraining) || errors.Is(err, errElsewhere)
}

// carry sets the headers of a call that is forwarded.
func (s *Server) carry(ctx context.Context, from, to http.Header) error {
	p := principal.Of(ctx)
	data, err := json.Marshal(caller{p, p.Role.String()})
	if err != nil {
		return err
	}
	for name, values := range from {
		if strings.HasPrefix(name, "X-Agentd-") || name == "Traceparent" || name == "Tracestate" {
			to[name] = values
		}
	}
	to.Set(headerSecret, s.now().ReplicaSecret)
	to.Set(headerBy, s.now().ReplicaAddress)
	to.Set(headerPrincipal, base64.StdEncoding.EncodeToString(data))
	return nil
}

// replicaURL is where a server is called.
func replicaURL(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// passed is a message of a call that is forwarded, whatever its type.
type passed struct {
	msg  proto.Message // to be sent
	data []byte        // as received
}

// passing encodes messages of type passed.
type passing struct{}

func (passing) Name() string { return "proto" }

func (passing) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(*passed).msg) }

func (passing) Unmarshal(data []byte, v any) error {
	v.(*passed).data = append([]byte(nil), data...)
	return nil
}

// reply is the response to a call that was forwarded.
type reply struct {
	connect.AnyResponse
	msg any
}

func (r reply) Any() any { return r.msg }

// forwardUnary makes a call at the server that owns its session.
func (s *Server) forwardUnary(
	ctx context.Context, req connect.AnyRequest, address string,
) (connect.AnyResponse, error) {
	msg, isProto := req.Any().(proto.Message)
	method, described := req.Spec().Schema.(protoreflect.MethodDescriptor)
	if !isProto || !described {
		return nil, fault.Errorf(codeInternal, "internal error")
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return nil, err
	}
	clnt := connect.NewClient[passed, passed](s.now().ReplicaClient, replicaURL(address)+req.Spec().Procedure,
		connect.WithCodec(passing{}))
	out := connect.NewRequest(&passed{msg: msg})
	if err := s.carry(ctx, req.Header(), out.Header()); err != nil {
		return nil, err
	}
	resp, err := clnt.CallUnary(ctx, out)
	if e, is := errors.AsType[*connect.Error](err); is && hasMoved(e.Meta()) {
		return nil, errAway
	}
	if err != nil {
		return nil, s.unreached(ctx, err)
	}
	back := kind.New().Interface()
	if err := proto.Unmarshal(resp.Msg.data, back); err != nil {
		return nil, err
	}
	return reply{connect.NewResponse(&emptypb.Empty{}), back}, nil
}

// errUnreached is what a client reads of an owner that does not respond.
var errUnreached = fault.Errorf(codeUnavailable,
	"the server that runs the session does not respond: try again").After(retryLater)

// unreached returns an error of the owner as it is, and errUnreached in place of one of the connection to it.
func (s *Server) unreached(ctx context.Context, err error) error {
	switch {
	case connect.IsWireError(err) || ctx.Err() != nil:
		return err
	case notSent(err):
		return errAway
	}
	return errUnreached
}

// notSent reports whether a call has failed before anything was sent.
func notSent(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// faultFrom returns an error that another server has sent to a client.
func faultFrom(err error) *fault.Error {
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || !connect.IsWireError(err) {
		return errUnreached
	}
	for _, detail := range e.Details() {
		value, err := detail.Value()
		if said, ok := value.(*agentdv1.RunResponse_ErrorResponse); err == nil && ok {
			return faultSaid(said)
		}
	}
	switch e.Code() {
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeUnimplemented:
		return &fault.Error{Code: codeInternal, Message: "internal error", Err: err}
	default: // a server that ends a stream by itself says why; this one is gone, or the way to it
		return errUnreached
	}
}

// faultSaid returns an error that another server has sent in a stream.
func faultSaid(said *agentdv1.RunResponse_ErrorResponse) *fault.Error {
	e := &fault.Error{Code: said.GetCode(), Message: said.GetMessage(), TurnID: said.GetTurnId()}
	if said.GetRetryAfter() != nil {
		e.RetryAfter = said.GetRetryAfter().AsDuration()
	}
	return e
}

// DeleteAt has the server at an address remove a session of the tenant of ctx's principal, for whoever erases what a
// tenant has: no request of a client is forwarded.
func (s *Server) DeleteAt(ctx context.Context, address, id string) error {
	req := connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: id})
	err := s.carry(ctx, nil, req.Header())
	if err == nil {
		_, err = s.sessionsAt(address).DeleteSession(ctx, req)
	}
	if err != nil && connect.CodeOf(err) == connect.CodeNotFound {
		return faultFrom(err)
	}
	return err
}
