package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// compact is a message as protobuf JSON, without white space: protojson's own is
// random.
func compact(m proto.Message) (string, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return "", err
	}
	return b.String(), nil
}

// WriteJSON writes a message as protobuf JSON on one line.
func WriteJSON(w io.Writer, m proto.Message) error {
	text, err := compact(m)
	if err == nil {
		_, err = io.WriteString(w, text+"\n")
	}
	return err
}

// JSON shows a turn to programs: each event on a line.
type JSON struct{ Out io.Writer }

// Event writes an event.
func (s JSON) Event(event *agentdv1.RunResponse) error { return WriteJSON(s.Out, event) }

// Hold does nothing: what is asked goes elsewhere.
func (JSON) Hold(bool) error { return nil }
