package gestalt

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// A page of pieces of a text becomes one event, and takes no more memory than a few times the text.
func TestPieces(t *testing.T) {
	n := &numbering{t: &Turn{ID: "t"}}
	var want strings.Builder
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range numberPage {
		text := fmt.Sprintf("%d%s", i, strings.Repeat("x", 1024))
		want.WriteString(text)
		n.piece(&gestaltv1.AgentTurnEvent{Display: &gestaltv1.AgentTurnDisplay{Ref: "m"}},
			&agentdv1.RunResponse_OutputChunk{Content: text, MessageId: "m"})
	}
	events := n.events()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("%d pieces of 1 KiB take %d MiB", numberPage, took>>20)
	}
	got := &gestaltv1.AgentTurnEvent{}
	if len(events) != 1 || proto.Unmarshal(events[0].Data, got) != nil {
		t.Fatalf("%d events", len(events))
	}
	for name, text := range map[string]string{
		"data": got.GetData().GetFields()["text"].GetStringValue(), "display": got.GetDisplay().GetText(),
	} {
		if text != want.String() {
			t.Errorf("%s has %d bytes, want %d", name, len(text), want.Len())
		}
	}
	if events[0].Message != "m" {
		t.Errorf("the message is %q", events[0].Message)
	}
}
