package check_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/check"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// made is a database that a daemon has written, with the sessions of it.
type made struct {
	file string
	// talk has two turns with a tool, asked a resolved approval, fork is a fork of talk, gone is to be deleted.
	talk, asked, fork, gone string
}

type input struct {
	Name string `json:"name"`
}

// madeByRuns has a daemon run turns, ends it, and returns its database.
func madeByRuns(t *testing.T) made {
	t.Helper()
	dir, ctx := t.TempDir(), t.Context()
	d, err := agentdtest.New(agentdtest.Config{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	clnt := d.Client()
	greet := func(_ context.Context, in input) (any, error) { return "Hello, " + in.Name + "!", nil }
	if err := client.AddTool(clnt, "greet", "Returns a greeting", greet); err != nil {
		t.Fatal(err)
	}
	agent := client.LLM("greeter", "scripted/demo", client.Tools("greet"))
	send := func(agent *client.Agent, opts ...client.SendOption) *client.Session {
		t.Helper()
		s := clnt.NewSession(agent, opts...)
		if _, err := s.Send(ctx, "Say hi to Alice", client.WithIdempotencyKey(rand())); err != nil {
			t.Fatal(err)
		}
		return s
	}
	talk := send(agent)
	if _, err := talk.Send(ctx, "Say hi to Bob", client.WithIdempotencyKey("second")); err != nil {
		t.Fatal(err)
	}
	fork, err := talk.Fork(ctx, client.ForkAt{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fork.Send(ctx, "Say hi to Carol"); err != nil {
		t.Fatal(err)
	}
	asking := client.New(d.URL, client.WithHTTPClient(d.HTTPClient()))
	if err := client.AddTool(asking, "greet", "Returns a greeting", greet, client.NeedsApproval()); err != nil {
		t.Fatal(err)
	}
	asked := asking.NewSession(agent, client.WithPrompter(client.PrompterFunc(func(context.Context, *client.Interaction) (*client.Resolution, error) {
		return client.Approve(), nil
	})))
	if _, err := asked.Send(ctx, "Say hi to Dora"); err != nil {
		t.Fatal(err)
	}
	gone := send(agent)
	if err := clnt.SetSharedState(ctx, map[string]any{"app:plan": "ship it"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return made{filepath.Join(dir, "agentd.db"), talk.ID(), asked.ID(), fork.ID(), gone.ID()}
}

var keys int

func rand() string { keys++; return fmt.Sprint("key-", keys) }

// find checks a database.
func find(t *testing.T, file string) ([]check.Finding, check.Summary, error) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), file, sqlite.Config{ReadOnly: true})
	if err != nil {
		return nil, check.Summary{}, err
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	var found []check.Finding
	sum, err := check.Run(t.Context(), db, check.Config{
		Decode: adkbridge.New(adkbridge.Config{}).Decode,
		Report: func(f check.Finding) { found = append(found, f) },
	})
	return found, sum, err
}

// change runs statements on a copy of a database. $talk and so on stand for the sessions.
func (m made) change(t *testing.T, statements string) (file string) {
	t.Helper()
	data, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "agentd.db")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("$talk", "'"+m.talk+"'", "$asked", "'"+m.asked+"'", "$fork", "'"+m.fork+"'", "$gone", "'"+m.gone+"'",
		"$result", "(SELECT min(seq) FROM records WHERE session_id = '"+m.talk+"' AND kind = 'tool_result')").Replace(statements)
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// makeRoom moves the records of the session talk behind its first result by one.
const makeRoom = `CREATE TEMP TABLE at AS SELECT $result AS seq;
	UPDATE records SET seq = seq + 1000, sum = NULL WHERE session_id = $talk AND seq > (SELECT seq FROM at);
	UPDATE records SET seq = seq - 999 WHERE session_id = $talk AND seq > 1000;
	UPDATE sessions SET last_seq = last_seq + 1 WHERE id = $talk;`

// corruptions are statements, the session and the rule of a finding that they lead to, and a part of its line.
var corruptions = map[string]struct{ statements, session, rule, says string }{
	"a flipped bit in a record": {
		`UPDATE records SET data = CAST(replace(data, 'Alice', 'Alicf') AS BLOB) WHERE session_id = $talk AND seq = 1`,
		"talk", "log.record", "record 1 of session",
	},
	"a missing record": {`DELETE FROM records WHERE session_id = $talk AND seq = 2`, "talk", "log.record", `record 2: `},
	"a second result": {
		makeRoom + `INSERT INTO records (session_id, seq, turn_id, kind, time, data)
			SELECT session_id, seq + 1, turn_id, kind, time, data FROM records WHERE session_id = $talk AND seq = (SELECT seq FROM at)`,
		"talk", "log.call", "second result",
	},
	"a second start of a turn": {
		makeRoom + `INSERT INTO records (session_id, seq, turn_id, kind, time, data)
			SELECT session_id, (SELECT seq + 1 FROM at), turn_id, kind, time, data FROM records WHERE session_id = $talk AND seq = 1`,
		"talk", "log.order", "is open",
	},
	"a turn that waits for ever": {
		`INSERT INTO records (session_id, seq, turn_id, kind, time, data) SELECT session_id, (SELECT last_seq + 1 FROM sessions
			WHERE id = $talk), 'e-late', 'turn_queued', time, data FROM records WHERE session_id = $talk AND seq = 1;
			UPDATE sessions SET last_seq = last_seq + 1 WHERE id = $talk`,
		"talk", "log.order", "waits for ever",
	},
	"a head beyond the log": {`UPDATE sessions SET last_seq = last_seq + 1 WHERE id = $talk`, "talk", "head", "the log ends with record"},
	"a head before the end": {`UPDATE sessions SET last_seq = last_seq - 1 WHERE id = $talk`, "talk", "head", "the log ends with record"},
	"an open turn in the head": {
		`UPDATE sessions SET open_turn = last_turn WHERE id = $talk`, "talk", "head", "the open turn is",
	},
	"another status in the head": {
		`UPDATE sessions SET last_status = 'failed' WHERE id = $talk`, "talk", "head", `want "succeeded"`,
	},
	"another usage in the head": {
		`UPDATE sessions SET usage = json_set(usage, '$.calls', 99) WHERE id = $talk`, "talk", "usage", `"calls":99`,
	},
	"a head that is no JSON": {`UPDATE sessions SET usage = '{' WHERE id = $talk`, "talk", "session", "cannot be read"},
	"a missing row":          {`DELETE FROM entries WHERE session_id = $talk AND seq = 1`, "talk", "index", "is missing"},
	"a missing row of an interaction": {
		`DELETE FROM entries WHERE session_id = $asked AND kind = 'interaction'`, "asked", "index", "the row of interaction",
	},
	"a row of earlier": {
		`UPDATE entries SET status = 'open' WHERE session_id = $talk AND seq = 1`, "talk", "index", `has status "open"; want "succeeded"`,
	},
	"a row with another usage": {
		`UPDATE entries SET data = CAST(json_set(data, '$.usage.calls', 7) AS BLOB) WHERE session_id = $talk AND seq = 1`,
		"talk", "index", `"calls":7`,
	},
	"a row of a turn that never was": {
		`INSERT INTO entries SELECT session_id, kind, 'e-none', 'e-none', seq, created_at, status, data FROM entries
			WHERE session_id = $talk AND seq = 1`, "talk", "index", "which the log does not have",
	},
	"rows without a session": {`DELETE FROM sessions WHERE id = $gone`, "gone", "orphan", "there is no such session"},
	"a result without a call": {
		`UPDATE records SET data = CAST(json_set(data, '$.call_id', 'c-none') AS BLOB), sum = NULL
			WHERE session_id = $talk AND seq = $result`, "talk", "log.call", `tool call "c-none"`,
	},
	"a call without a result": {
		`UPDATE records SET kind = 'clients_left', data = CAST('{}' AS BLOB), sum = NULL
			WHERE session_id = $talk AND seq = $result`, "talk", "log.call", "has no result",
	},
	"broken JSON": {
		`UPDATE records SET data = CAST('{' AS BLOB), sum = NULL WHERE session_id = $talk AND seq = 2`,
		"talk", "log.record", "does not decode",
	},
	"a kind that there is not": {
		`UPDATE records SET kind = 'new', sum = NULL WHERE session_id = $talk AND seq = 2`, "talk", "log.record", "unknown kind",
	},
	"another history in a fork": {
		`UPDATE records SET time = time + 1, sum = NULL WHERE session_id = $fork AND seq = 2`, "fork", "fork", "not the record that was inherited",
	},
	"a key without its turn": {
		`UPDATE keys SET id = 'e-none' WHERE session_id = $talk AND name = 'second'`, "talk", "key", `names turn "e-none"`,
	},
	"a shared value that is no JSON": {`UPDATE shared SET value = CAST('{' AS BLOB)`, "", "shared", `"plan"`},
	"a shared scope that is none":    {`UPDATE shared SET scope = 'ap'`, "", "shared", `scope "ap"`},
	"a missing index":                {`DROP INDEX sessions_by_ref`, "", "file", "lacks index sessions_by_ref"},
}

// TestCheckFindsPlantedCorruptions plants each corruption in a copy of a database that is in order.
func TestCheckFindsPlantedCorruptions(t *testing.T) {
	m := madeByRuns(t)
	ids := map[string]string{"": "", "talk": m.talk, "asked": m.asked, "fork": m.fork, "gone": m.gone}
	if found, sum, err := find(t, m.file); err != nil || len(found) > 0 || sum.Sessions != 4 || sum.Records < 20 {
		t.Fatalf("before: %v, %+v, %v", found, sum, err)
	}
	for name, c := range corruptions {
		t.Run(name, func(t *testing.T) {
			found, _, err := find(t, m.change(t, c.statements))
			if err != nil {
				t.Fatal(err)
			}
			hit := false
			for _, f := range found {
				t.Log(f)
				hit = hit || f.Session == ids[c.session] && f.Rule == c.rule && strings.Contains(f.String(), c.says)
			}
			if !hit {
				t.Errorf("no finding %s of session %q says %q", c.rule, ids[c.session], c.says)
			}
		})
	}
	t.Run("a torn page", func(t *testing.T) {
		file := m.change(t, "SELECT 1")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2000 { // of a page in the middle
			data[len(data)/2/4096*4096+i] ^= 0x55
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if found, _, err := find(t, file); err != nil || len(found) == 0 {
			t.Errorf("findings %v, %v", found, err)
		}
	})
	for name, c := range map[string]struct{ statements, says string }{
		"another schema version": {`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`, "schema version is 99"},
		"another program's id":   {`PRAGMA application_id = 7`, "another program"},
		"no sessions":            {`DROP TABLE records`, "no agentd database"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := find(t, m.change(t, c.statements)); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q in it", err, c.says)
			}
		})
	}
}
