package contract_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// reserved are the numbers that are promised to fields to come: the message, the number or
// the range of numbers, and the name, if it has one already. A field takes its line away
// when it is added.
const reserved = `
RunRequest.ExecuteRequest 29
Part 5 file_id
WatchSessionRequest 5 tree
WatchSessionRequest 6 tool_names
`

func TestReservedNumbers(t *testing.T) {
	for line := range strings.SplitSeq(strings.TrimSpace(reserved), "\n") {
		words := strings.Fields(line)
		if len(words) < 2 || len(words) > 3 {
			t.Fatalf("table: %q is no line of a message, a number and a name", line)
		}
		m := message(t, words[0])
		if m == nil {
			t.Errorf("%s: there is no such message", line)
			continue
		}
		from, to := numbers(t, words[1])
		for n := from; n <= to; n++ {
			if !m.ReservedRanges().Has(n) {
				t.Errorf("%s: %d is not reserved in the proto", line, n)
			}
			if f := m.Fields().ByNumber(n); f != nil {
				t.Errorf("%s: %d is used by %s", line, n, f.Name())
			}
		}
		if len(words) < 3 {
			continue
		}
		name := protoreflect.Name(words[2])
		if !m.ReservedNames().Has(name) {
			t.Errorf("%s: the name is not reserved in the proto", line)
		}
		if m.Fields().ByName(name) != nil {
			t.Errorf("%s: the name is used", line)
		}
	}
}

func numbers(t *testing.T, word string) (from, to protoreflect.FieldNumber) {
	t.Helper()
	first, last, ranged := strings.Cut(word, "-")
	if !ranged {
		last = first
	}
	n, err1 := strconv.ParseInt(first, 10, 32)
	m, err2 := strconv.ParseInt(last, 10, 32)
	if err1 != nil || err2 != nil || m < n {
		t.Fatalf("table: %q is no number and no range", word)
	}
	return protoreflect.FieldNumber(n), protoreflect.FieldNumber(m)
}

func message(t *testing.T, name string) protoreflect.MessageDescriptor {
	t.Helper()
	all := messages(t)
	i := slices.IndexFunc(all, func(m protoreflect.MessageDescriptor) bool {
		return string(m.FullName()) == pkg+"."+name
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// messages are all messages of the protocol.
func messages(t *testing.T) []protoreflect.MessageDescriptor {
	t.Helper()
	var all []protoreflect.MessageDescriptor
	var add func(of protoreflect.MessageDescriptors)
	add = func(of protoreflect.MessageDescriptors) {
		for i := range of.Len() {
			all = append(all, of.Get(i))
			add(of.Get(i).Messages())
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		agentdv1.File_agentd_v1_service_proto, agentdv1.File_agentd_v1_sessions_proto,
		agentdv1.File_agentd_v1_types_proto, agentdv1.File_agentd_v1_interactions_proto,
		agentdv1.File_agentd_v1_eventlog_proto,
		agentdv1.File_agentd_v1_goals_proto, agentdv1.File_agentd_v1_goal_events_proto,
	} {
		add(file.Messages())
	}
	return all
}
