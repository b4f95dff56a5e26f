package wire

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/apzuk3/agentd/internal/encoded"
)

// Endpoint is where requests go with one key. It is immutable; any goroutine may use it.
type Endpoint struct {
	// Client makes each request once and follows no redirect: see adapter.HTTPClient.
	Client *http.Client
	// URL is the base of the API, without a slash at its end.
	URL string
	// Header is that of each request, the key among it.
	Header http.Header
}

// Post sends body, which is JSON, to a path of the API, which begins without a slash. The
// header of the request is that of the endpoint and header, which may be nil. The response
// may have any status; its body is bounded, and is the caller's to close.
func (e *Endpoint) Post(
	ctx context.Context, path string, body *encoded.Body, header http.Header,
) (*http.Response, error) {
	base, err := url.Parse(e.URL + "/")
	if err != nil {
		return nil, err
	}
	to := base.ResolveReference(&url.URL{Path: path})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), body.Reader())
	if err != nil {
		return nil, err
	}
	req.ContentLength = body.Len()
	req.GetBody = func() (io.ReadCloser, error) { return body.Reader(), nil }
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "agentd")
	maps.Copy(req.Header, e.Header)
	maps.Copy(req.Header, header)
	resp, err := e.Client.Do(req)
	if err != nil {
		return nil, err
	}
	bound(resp)
	return resp, nil
}
