package plainlog_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/plainlog"
	"github.com/apzuk3/agentd/session/record"
)

// log is a log of one turn, whose ids are made of a letter.
func log(letter string, facts ...string) []record.Record {
	var out []record.Record
	id := strings.Repeat(letter, 26)
	for i, fact := range facts {
		kind, data, _ := strings.Cut(fact, " ")
		out = append(out, record.Record{
			Seq: int64(i + 1), TurnID: id, Kind: record.Kind(kind), Time: time.Now(),
			Data: []byte(strings.ReplaceAll(data, "ID", "call_"+id)),
		})
	}
	return out
}

func TestText(t *testing.T) {
	started, event := string(record.KindTurnStarted)+" ", string(record.KindEvent)+" "
	result, ended := string(record.KindToolResult)+" ", string(record.KindTurnEnded)+" "
	resolved := string(record.KindInteractionResolved) + " "
	whole := []string{started + `{"prompt":"go"}`, event + `{"author":"a","text":"ID"}`, result + `{"call":"ID","output":"x"}`, result + `{"output":"y"}`, resolved + `{"key":"a"}`, ended + `{"took":1}`}
	plain := func(recs []record.Record) string {
		t.Helper()
		text, err := plainlog.Text(recs)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	want := plain(log("a", whole...))
	for name, tc := range map[string]struct {
		facts []string
		same  bool
	}{
		"ids":              {whole, true},
		"times":            {append(whole[:5:5], ended+`{"took":2}`), true},
		"order of results": {[]string{whole[0], whole[1], whole[3], whole[2], whole[4], whole[5]}, true},
		"keys":             {slices.Concat(whole[:4], []string{resolved + `{"key":"b"}`}, whole[5:]), true},
		"no key":           {slices.Concat(whole[:4], []string{resolved + `{}`}, whole[5:]), false},
		"a result more":    {append(whole[:4:4], whole[3], whole[4], whole[5]), false},
		"a record less":    {whole[:5], false},
		"other text":       {append(whole[:5:5], ended+`{"reason":"no"}`), false},
		"order of records": {[]string{whole[0], whole[2], whole[1], whole[3], whole[4], whole[5]}, false},
	} {
		if got := plain(log("b", tc.facts...)); (got == want) != tc.same {
			t.Errorf("%s: same %v, want %v: %s", name, got == want, tc.same, plainlog.Difference(want, got))
		}
	}
	if _, err := plainlog.Text(log("a", event+"{")); err == nil {
		t.Error("a record that is no JSON has no error")
	}
}
