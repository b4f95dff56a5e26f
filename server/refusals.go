package server

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// Connect itself refuses what never becomes a request, and its errors have no details.
// These layers add them: the interceptor of SessionService refuses what its codec
// cannot decode, the body refuses what is too large, and a layer around both services'
// handlers refuses what is no call of a method. (Run reports messages that it cannot
// decode on its stream.)

// maxDecoderText bounds a decoder's words in an error. They may quote the client.
const maxDecoderText = 4 * maxQuoted

// faultField is the number of the unknown field in which a message carries why it
// could not be decoded: the largest there is, which no message of the protocol has.
const faultField = protowire.MaxValidNumber

// faultyBinary and faultyJSON are codecs that decode a message that is none to an
// empty one with its fault; see faultOf.
type (
	faultyBinary struct {
		binaryCodec
		limit int
	}
	faultyJSON struct {
		jsonCodec
		limit int
	}
)

func (c faultyBinary) Unmarshal(data []byte, message any) error {
	return decodeOrFault(data, message, c.limit, c.binaryCodec.Unmarshal)
}

func (c faultyJSON) Unmarshal(data []byte, message any) error {
	return decodeOrFault(data, message, c.limit, c.jsonCodec.Unmarshal)
}

func decodeOrFault(data []byte, message any, limit int, decode func([]byte, any) error) error {
	m, err := asProto(message)
	if err != nil {
		return err
	}
	var fault *fault.Error
	if len(data) > limit { // of a GET; a body is bounded before
		fault = errTooLarge(limit)
	} else if err := decode(data, message); err != nil {
		fault = decodeFault(err, string(m.ProtoReflect().Descriptor().Name()))
	}
	if fault == nil {
		m.ProtoReflect().SetUnknown(nil) // a client says nothing in the fault's place
		return nil
	}
	value, err := proto.Marshal(errorResponse("", fault).GetError())
	if err != nil {
		return err
	}
	proto.Reset(m)
	m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, faultField, protowire.BytesType), value))
	return nil
}

// faultOf is why a message of one of these codecs could not be decoded; nil if it
// could.
func faultOf(m proto.Message) *fault.Error {
	num, _, n := protowire.ConsumeTag(m.ProtoReflect().GetUnknown())
	if n < 0 || num != faultField {
		return nil
	}
	value, _ := protowire.ConsumeBytes(m.ProtoReflect().GetUnknown()[n:])
	refusal := &agentdv1.RunResponse_ErrorResponse{}
	if err := proto.Unmarshal(value, refusal); err != nil {
		return fault.As(fmt.Errorf("server: a fault that cannot be read: %w", err))
	}
	e := &fault.Error{Code: refusal.GetCode(), Message: refusal.GetMessage()}
	for _, v := range refusal.GetViolations() {
		e = e.Breaking(v.GetField(), v.GetRule())
	}
	if l := refusal.GetLimit(); l != nil {
		e.Limit = &fault.Limit{Name: l.GetName(), Value: l.GetValue(), Received: l.GetReceived()}
	}
	return e
}

// decodeFault returns why a message could not be decoded.
func decodeFault(err error, name string) *fault.Error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	d, ok := errors.AsType[*decodeError](err)
	switch {
	case ok && d.tooDeep:
		return fault.Errorf(codeLimit, "the message is nested too deeply: at most %d levels are allowed", maxDepth).
			Over("message_depth", maxDepth, 0)
	case errors.Is(err, errTooManyValues):
		return fault.Errorf(codeLimit,
			"the message holds more than %d values, nested ones included; more are not allowed", maxValues).
			Over("message_values", maxValues, 0)
	}
	text := err.Error()
	if len(text) > maxDecoderText {
		text = text[:maxDecoderText] + "…"
	}
	return fault.Errorf(codeInvalid, "the message is no %s: %s", name, text)
}

func errTooLarge(limit int) *fault.Error {
	return fault.Errorf(codeLimit, "the message is too large: at most %d bytes are allowed", limit).
		Over("message_bytes", limit, 0)
}

// acceptable returns what is wrong with a request of SessionService, nil for nothing.
func (s *Server) acceptable(m proto.Message) *fault.Error {
	if fault := faultOf(m); fault != nil {
		return fault
	}
	if r, ok := m.(*agentdv1.SubmitToolResultsRequest); ok {
		return checkResults(s.rules, r)
	}
	return check(s.rules, m)
}

// envelopeBytes is what the protocols with envelopes put before a message.
const envelopeBytes = 5

// boundedBody is a request's body that refuses more than one message of the largest
// size. It is owned by the goroutine that reads.
type boundedBody struct {
	io.ReadCloser
	left    int64 // below 0: there was more
	refused func() *connect.Error
}

func (s *Server) newBoundedBody(r *http.Request) *boundedBody {
	limit := s.now().MaxMessageBytes
	return &boundedBody{
		ReadCloser: r.Body, left: int64(limit) + envelopeBytes,
		refused: sync.OnceValue(func() *connect.Error {
			e := errTooLarge(limit)
			s.limited(e)
			err := connectError(e)
			accessOf(r.Context()).failed(err)
			return err
		}),
	}
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left >= 0 {
		n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
		if b.left -= int64(n); b.left >= 0 {
			return n, err
		}
		// A client that still sends does not read the error.
		_, _ = io.Copy(io.Discard, b.ReadCloser)
	}
	return 0, b.refused()
}

// withExplanations makes refusals without an RPC error (no such method, verb or content
// type) say what is wrong, in the form of the client's protocol. It refuses itself what
// connect would refuse without details.
func withExplanations(next http.Handler) http.Handler {
	write := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := unreadable(r); err != nil {
			accessOf(r.Context()).failed(err)
			_ = write.Write(w, r, err) // a client that is gone reads nothing
			return
		}
		next.ServeHTTP(&explainer{ResponseWriter: w, r: r, write: write}, r)
	})
}

// unreadable returns why a request is refused before its message is read, nil if it is
// not.
func unreadable(r *http.Request) *connect.Error {
	query, kind := url.Values{}, r.Header.Get("Content-Type")
	compression := r.Header.Get("Content-Encoding")
	switch {
	case r.Method == http.MethodGet:
		query = r.URL.Query()
		compression = query.Get("compression")
	case strings.HasPrefix(kind, "application/grpc"):
		compression = r.Header.Get("Grpc-Encoding")
	case strings.HasPrefix(kind, "application/connect+"):
		compression = r.Header.Get("Connect-Content-Encoding")
	}
	switch compression {
	case "", "identity", "gzip": // gzip is refused as soon as it is used
	default:
		err := fmt.Errorf("the compression %s is not known: %w", quote(compression), errCompressed)
		return detailed(connect.CodeUnimplemented, err, fault.Errorf(codeInvalid, "%w", err))
	}
	if query.Get("base64") == "1" {
		if _, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(query.Get("message"), "=")); err != nil {
			return connectError(fault.Errorf(codeInvalid, "the message is no URL-safe base64, as base64=1 says: %v",
				err))
		}
	}
	return nil
}

// explainer belongs to the handler's goroutine.
type explainer struct {
	http.ResponseWriter
	r        *http.Request
	write    *connect.ErrorWriter
	replaced bool // what the handler writes is of no use
}

func (e *explainer) WriteHeader(status int) {
	var why *fault.Error
	method := path.Base(e.r.URL.Path)
	// Connect sets a content type before it writes.
	if t := e.Header().Get("Content-Type"); t == "" || t == "text/plain; charset=utf-8" {
		switch status {
		case http.StatusNotFound:
			why = fault.Errorf(codeInvalid, "%s has no method %s", path.Base(path.Dir(e.r.URL.Path)), quote(method))
		case http.StatusMethodNotAllowed:
			why = fault.Errorf(codeInvalid, "%s is not called by %s: %s are allowed", method, quote(e.r.Method),
				e.Header().Get("Allow"))
		case http.StatusUnsupportedMediaType:
			why = fault.Errorf(codeInvalid, "%s takes no content type %s: send one of %s", method,
				quote(e.r.Header.Get("Content-Type")), e.Header().Get("Accept-Post"))
			if e.r.Method == http.MethodGet {
				why = fault.Errorf(codeInvalid, "%s takes no encoding %s: send json or proto, and no body", method,
					quote(e.r.URL.Query().Get("encoding")))
			}
		}
	}
	if why == nil {
		e.ResponseWriter.WriteHeader(status)
		return
	}
	e.replaced = true
	err := connectError(why)
	if status == http.StatusNotFound {
		err = detailed(connect.CodeUnimplemented, errors.New(err.Message()), why)
	}
	accessOf(e.r.Context()).failed(err)
	e.Header().Del("X-Content-Type-Options")
	_ = e.write.Write(keepStatus{e.ResponseWriter, status}, e.r, err) // a client that is gone reads nothing
}

func (e *explainer) Write(p []byte) (int, error) {
	if e.replaced {
		return len(p), nil
	}
	return e.ResponseWriter.Write(p)
}

// Flush is what connect looks for.
func (e *explainer) Flush() {
	if f, ok := e.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is what http.ResponseController looks for.
func (e *explainer) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// keepStatus keeps the status of a refusal that has no trailer.
type keepStatus struct {
	http.ResponseWriter
	status int
}

func (k keepStatus) WriteHeader(status int) {
	if status != http.StatusOK {
		status = k.status
	}
	k.ResponseWriter.WriteHeader(status)
}
