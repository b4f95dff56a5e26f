package model

import (
	"io"
	"net/http"

	"github.com/apzuk3/agentd/internal/wiretap"
)

// MaxRaw bounds the body of one Raw, in bytes.
const MaxRaw = wiretap.MaxBody

// Raw is a provider's HTTP answer as it came, but for the keys of the request,
// which some providers repeat.
type Raw struct {
	// Attempt is the number of the try, from 1. A try may have several answers, in
	// order, such as those of a model that pauses.
	Attempt int
	// Provider has answered, with Status and ContentType.
	Provider    string
	Status      int
	ContentType string
	// Body is what was read of it, at most MaxRaw bytes; Truncated tells that there
	// was more.
	Body      []byte
	Truncated bool
}

// Tapped returns the body of resp, the answer to req, so that the server knows that the
// provider is not silent while it is read, and whoever asked for raw payloads gets what is
// read of it, see Request.OnRaw. HTTPClient does so by itself: it is for adapters with
// transports of their own.
func Tapped(req *http.Request, resp *http.Response) io.ReadCloser { return wiretap.Body(req, resp) }
