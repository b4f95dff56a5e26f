package server

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/session/fault"
)

// maxDepth is how deeply the messages of a request may be nested. Protobuf's
// own limit of 10,000 lets 34 KB make a tree that costs seconds to walk.
const maxDepth = 100

// compressMinBytes keeps small replies uncompressed: most events are a few
// dozen bytes, which compression only makes larger and later.
const compressMinBytes = 1 << 10

// handlerOptions bound what connect decodes. 0 is for a body that is bounded before.
func handlerOptions(maxMessageBytes int) []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessageBytes),
		connect.WithCodec(binaryCodec{}),
		connect.WithCodec(jsonCodec{name: "json"}),
		connect.WithCodec(jsonCodec{name: "json; charset=utf-8"}),
		connect.WithCompression("gzip",
			func() connect.Decompressor { return refuseCompressed{} },
			newCompressor),
		connect.WithCompressMinBytes(compressMinBytes),
	}
}

// newCompressor returns one that compresses fast: the text of a turn gets hardly larger than with the default level,
// for a third of the work.
func newCompressor() connect.Compressor {
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is one
	}
	return w
}

// sessionOptions are those of SessionService, whose refusals of messages have details.
func sessionOptions(maxMessageBytes int) []connect.HandlerOption {
	return append(handlerOptions(0),
		connect.WithCodec(faultyBinary{limit: maxMessageBytes}),
		connect.WithCodec(faultyJSON{jsonCodec{name: "json"}, maxMessageBytes}),
		connect.WithCodec(faultyJSON{jsonCodec{name: "json; charset=utf-8"}, maxMessageBytes}),
	)
}

// othersOptions are the options of services that are not agentd's own. Their requests
// may hold anything.
func othersOptions() []connect.HandlerOption {
	return append(handlerOptions(smallMessageBytes),
		connect.WithCodec(binaryCodec{open: true}),
		connect.WithCodec(jsonCodec{name: "json", open: true}),
		connect.WithCodec(jsonCodec{name: "json; charset=utf-8", open: true}),
	)
}

// errCompressed is what a compressed request gets.
var errCompressed = errors.New(
	"compressed requests are not accepted; send them as they are (compressed replies are fine)")

// refuseCompressed refuses before a byte is inflated: connect would inflate a
// bomb to its end, only to report its size.
type refuseCompressed struct{}

func (refuseCompressed) Read([]byte) (int, error) {
	return 0, detailed(connect.CodeInvalidArgument, errCompressed, fault.Errorf(codeInvalid, "%v", errCompressed))
}
func (refuseCompressed) Close() error          { return nil }
func (refuseCompressed) Reset(io.Reader) error { return nil }

// decodeError is a message that was received whole and could not be decoded:
// the stream is still in step.
type decodeError struct {
	err     error
	tooDeep bool
	of      resultHead // the call whose result the message is, if it can be found
}

func (e *decodeError) Error() string { return e.err.Error() }
func (e *decodeError) Unwrap() error { return e.err }

func newDecodeError(err error, data []byte) *decodeError {
	if u, ok := errors.AsType[*unknownFieldError](err); ok {
		err = u.fault()
	}
	of, _ := resultHeadOf(data)
	// Protobuf exports no error for this; a test holds the text.
	return &decodeError{err: err, of: of, tooDeep: strings.Contains(err.Error(), "recursion depth")}
}

func asProto(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("server: %T is no protobuf message", message)
	}
	return m, nil
}

// binaryCodec is protobuf's wire form with a bounded depth. Fields that it does not know
// are refused, unless it is open.
type binaryCodec struct{ open bool }

func (binaryCodec) Name() string { return "proto" }

func (binaryCodec) Marshal(message any) ([]byte, error) {
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

func (binaryCodec) MarshalAppend(b []byte, message any) ([]byte, error) {
	if s, ok := message.(*sharedMessage); ok {
		return s.appendBinary(b)
	}
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(b, m)
}

func (c binaryCodec) Unmarshal(data []byte, message any) error {
	m, err := asProto(message)
	if err != nil {
		return err
	}
	if err := countBinary(data, m.ProtoReflect().Descriptor(), c.open); err != nil {
		return newDecodeError(err, data)
	}
	tools := inlineTools{left: maxValues}
	named, err := tools.binary(data, m.ProtoReflect().Descriptor(), nil)
	if err != nil {
		return newDecodeError(err, data)
	}
	if named != nil {
		data = named
	}
	if err := (proto.UnmarshalOptions{RecursionLimit: maxDepth}).Unmarshal(data, m); err != nil {
		return newDecodeError(err, data)
	}
	if err := tools.declare(m); err != nil {
		return newDecodeError(err, data)
	}
	return nil
}

// jsonCodec is protobuf's JSON form with a bounded depth. Fields and names of values
// that it does not know are refused, unless it is open.
type jsonCodec struct {
	name string
	open bool
}

func (c jsonCodec) Name() string { return c.name }

func (jsonCodec) Marshal(message any) ([]byte, error) {
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(m)
}

func (jsonCodec) MarshalAppend(b []byte, message any) ([]byte, error) {
	if s, ok := message.(*sharedMessage); ok {
		return s.appendJSON(b)
	}
	m, err := asProto(message)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{}.MarshalAppend(b, m)
}

func (c jsonCodec) Unmarshal(data []byte, message any) error {
	m, err := asProto(message)
	if err != nil {
		return err
	}
	if err := countJSON(data); err != nil {
		return newDecodeError(err, data)
	}
	opts := protojson.UnmarshalOptions{DiscardUnknown: c.open, RecursionLimit: maxDepth}
	tools := inlineTools{left: maxValues}
	named, err := tools.json(data, m.ProtoReflect().Descriptor(), opts)
	if err != nil {
		return newDecodeError(err, data)
	}
	if named != nil {
		data = named
	}
	if err := opts.Unmarshal(data, m); err != nil {
		if u := unknownJSON(data, m.ProtoReflect().Descriptor()); u != nil && !c.open {
			err = u
		}
		return newDecodeError(err, data)
	}
	if err := tools.declare(m); err != nil {
		return newDecodeError(err, data)
	}
	return nil
}
