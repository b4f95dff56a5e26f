package client

import (
	"context"
	"maps"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Capabilities returns what the server is and allows. Its Features are what the server
// knows beyond what each server has known from the beginning, such as
// "RunRequest.ExecuteRequest.on_busy"; a request with a field that the server does not
// know is INVALID_REQUEST. All errors are an [*Error].
func (c *Client) Capabilities(ctx context.Context, opts ...RequestOption) (*agentdv1.GetCapabilitiesResponse, error) {
	rc, err := c.request(opts)
	if err != nil {
		return nil, err
	}
	req := connect.NewRequest(&agentdv1.GetCapabilitiesRequest{})
	maps.Copy(req.Header(), rc.header)
	resp, err := c.sessions.GetCapabilities(ctx, req)
	if err != nil {
		return nil, fromUnary(ctx, err)
	}
	return resp.Msg, nil
}
