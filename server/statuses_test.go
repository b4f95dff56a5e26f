package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// What docs/errors.md says of each code holds.
func TestStatuses(t *testing.T) {
	doc, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(doc)) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); strings.HasPrefix(line, "| `") && len(cells) == 7 {
			rows[strings.Trim(cells[0], "| `")] = cells[1:5]
		}
	}
	write := connect.NewErrorWriter()
	for number, name := range agentdv1.ErrorCode_name {
		code := agentdv1.ErrorCode(number)
		if number == 0 {
			continue
		}
		said, ok := rows[strings.TrimPrefix(name, "ERROR_CODE_")]
		if !ok {
			t.Errorf("docs/errors.md has no row for %s", name)
			continue
		}
		delete(rows, strings.TrimPrefix(name, "ERROR_CODE_"))
		e := connectError(fault.Errorf(code, "x"))
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/agentd.v1.SessionService/GetTurn", nil)
		r.Header.Set("Content-Type", "application/json")
		if err := write.Write(w, r, e); err != nil {
			t.Fatal(err)
		}
		retryable := map[bool]string{true: "yes", false: "no"}[(&fault.Error{Code: code}).Retryable()]
		want := []string{"`" + e.Code().String() + "`", strconv.Itoa(int(e.Code())), strconv.Itoa(w.Code), retryable}
		for i := range want {
			if said[i] != want[i] {
				t.Errorf("%s: docs/errors.md says %q, want %q", name, said, want)
				break
			}
		}
	}
	for name := range rows {
		t.Errorf("docs/errors.md has a row for %s, which is no code", name)
	}
}
