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

// WriteJSON writes a message as protobuf JSON on one line.
func WriteJSON(w io.Writer, m proto.Message) error {
	text, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil { // protojson's white space is random
		return err
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// JSON shows a turn to programs: each event on a line.
type JSON struct{ Out io.Writer }

// Event writes an event.
func (s JSON) Event(event *agentdv1.RunResponse) error { return WriteJSON(s.Out, event) }

// Hold does nothing: what is asked goes elsewhere.
func (JSON) Hold(bool) error { return nil }
