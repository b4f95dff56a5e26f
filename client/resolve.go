package client

import (
	"context"
	"errors"
	"maps"
	"net/http"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Resolve says what a person says to an interaction of a session, which any
// client may do, once, whether or not its turn runs at the moment. It returns the
// interaction as it is then. A second resolution is FAILED_PRECONDITION, unless
// it repeats the first one with its idempotency key; an unknown interaction is
// NOT_FOUND; one that does not fit is INVALID_REQUEST. All errors are an
// [*Error].
func (c *Client) Resolve(
	ctx context.Context, sessionID, interactionID string, said *Resolution, opts ...RequestOption,
) (*Interaction, error) {
	rc, err := c.request(opts)
	if err != nil {
		return nil, err
	}
	msg, err := said.checked()
	if err != nil {
		return nil, errorf(ErrInvalidRequest, "client.Resolve: %w", err)
	}
	return c.resolve(ctx, rc.header, sessionID, interactionID, msg)
}

func (c *Client) resolve(
	ctx context.Context, header http.Header, sessionID, id string, said *agentdv1.Resolution,
) (*Interaction, error) {
	msg := &agentdv1.ResolveInteractionRequest{SessionId: sessionID, InteractionId: id, Resolution: said}
	req := connect.NewRequest(msg)
	maps.Copy(req.Header(), header)
	resp, err := c.sessions.ResolveInteraction(ctx, req)
	if err != nil {
		return nil, fromUnary(ctx, err)
	}
	return InteractionOf(resp.Msg.GetInteraction()), nil
}

func (c *Client) interaction(ctx context.Context, header http.Header, sessionID, id string) (*Interaction, error) {
	req := connect.NewRequest(&agentdv1.GetInteractionRequest{SessionId: sessionID, InteractionId: id})
	maps.Copy(req.Header(), header)
	resp, err := c.sessions.GetInteraction(ctx, req)
	if err != nil {
		return nil, fromUnary(ctx, err)
	}
	return InteractionOf(resp.Msg.GetInteraction()), nil
}

// fromUnary translates a failed request: the protocol's own error is among its
// details.
func fromUnary(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return fromContext(ctx)
	}
	if refusal := refusalOf(err); refusal != nil {
		return fromResponse(refusal)
	}
	failure := fromTransport(err)
	failure.Message = "the request failed: " + err.Error()
	return failure
}

// refusalOf returns what the server has said with the error of a request; nil if it has said
// nothing.
func refusalOf(err error) *agentdv1.RunResponse_ErrorResponse {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	for _, detail := range ce.Details() {
		value, err := detail.Value()
		if refusal, ok := value.(*agentdv1.RunResponse_ErrorResponse); ok && err == nil {
			return refusal
		}
	}
	return nil
}
