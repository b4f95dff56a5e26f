package sqlite

import (
	"bufio"
	"bytes"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

const (
	crashEnv     = "SQLITESTORE_CRASH_DIR"
	crashWriters = 8
	crashKills   = 25
)

func crashSession(w int) string { return fmt.Sprintf("writer-%d", w) }

// crashBatch is what a writer appends after a sequence number: the same in every
// process, 1 to 3 records of 20 bytes to some kilobytes, and a row and a status
// that name the last of them.
func crashBatch(id string, after int64) store.Batch {
	n := 1 + int(after*7%3)
	b := batchOf(id, after, n, int(after*911%4000))
	b.LastTurn, b.LastStatus = "turn", fmt.Sprint(after+int64(n))
	b.Rows = []store.Row{{
		Kind: store.RowTurn, SessionID: id, ID: "turn", TurnID: "turn", Seq: 1, CreatedAt: start,
		Status: b.LastStatus, Data: []byte(b.LastStatus),
	}}
	return b
}

// TestKill kills a process that appends, again and again, and checks that what
// it had been told was durable is there.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	acked := map[string]int64{}
	total := 0
	for kill := range crashKills {
		// At a moment from before the database is open to well into the writing.
		total += killChild(t, dir, rand.IntN(4)*rand.IntN(60), acked)

		s := open(t, dir)
		for w := range crashWriters {
			id := crashSession(w)
			if _, err := s.Head(t.Context(), id); errors.Is(err, store.ErrNoSession) && acked[id] == 0 {
				continue
			}
			if last := wholeBatches(t, s, id); last < acked[id] {
				t.Errorf("after kill %d, session %q ends at %d, but %d was acknowledged", kill, id, last, acked[id])
			}
		}
		mustClose(t, s)
	}
	if total == 0 {
		t.Fatal("no append was ever acknowledged")
	}
	t.Logf("%d kills, %d acknowledged appends", crashKills, total)
}

// killChild starts TestCrashChild, kills it when it has said as many lines, and
// notes all that it has said.
func killChild(t *testing.T, dir string, lines int, acked map[string]int64) (n int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChild$")
	cmd.Env = append(os.Environ(), crashEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(out)
	for said := 0; scanner.Scan(); said++ {
		var id string
		var seq int64
		if _, err := fmt.Sscanf(scanner.Text(), "acked %s %d", &id, &seq); err == nil {
			acked[id] = max(acked[id], seq)
			n++
		} else if scanner.Text() != "begin" {
			t.Fatalf("the child says %q", scanner.Text())
		}
		if said == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the child ended with %v before it was killed", err)
	}
	return n
}

// TestCrashChild appends until it is killed.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashEnv)
	if dir == "" {
		return
	}
	var mu sync.Mutex // one line, one write
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Fprintf(os.Stdout, format+"\n", args...); err != nil {
			os.Exit(3)
		}
	}
	say("begin")
	s := open(t, dir)
	var wg sync.WaitGroup
	for w := range crashWriters {
		wg.Go(func() {
			id := crashSession(w)
			if err := s.Create(t.Context(), newSession(id), nil); err != nil && !errors.Is(err, store.ErrSessionExists) {
				t.Error(err)
				return
			}
			head, err := s.Head(t.Context(), id)
			for err == nil {
				b := crashBatch(id, head.LastSeq)
				if err = s.Append(t.Context(), b); err == nil {
					head.LastSeq += int64(len(b.Records))
					say("acked %s %d", id, head.LastSeq)
				}
			}
			t.Error(err)
		})
	}
	wg.Wait()
}

// wholeBatches checks that a log is a row of whole crashBatches, byte for byte,
// with what the last of them has written beside it, and returns where it ends.
func wholeBatches(t *testing.T, s *Store, id string) int64 {
	t.Helper()
	recs, err := s.Read(t.Context(), id, 0, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	last := lastSeq(t, s, id)
	for after := int64(0); after < last; {
		want := crashBatch(id, after).Records
		if int(after)+len(want) > len(recs) {
			t.Fatalf("session %q ends at %d, within the append after %d", id, last, after)
		}
		for i, w := range want {
			got := recs[int(after)+i]
			if got.Seq != w.Seq || got.Kind != w.Kind || !got.Time.Equal(w.Time) || !bytes.Equal(got.Data, w.Data) {
				t.Fatalf("session %q: record %d is not what was appended", id, w.Seq)
			}
		}
		after += int64(len(want))
	}
	if last == 0 {
		return 0
	}
	info, err := s.Info(t.Context(), id)
	if err != nil || info.LastStatus != fmt.Sprint(last) {
		t.Errorf("session %q ends at %d, its status says %q, %v", id, last, info.LastStatus, err)
	}
	q := store.RowQuery{Kind: store.RowTurn, Statuses: []string{info.LastStatus}, SessionID: id, Limit: 2}
	if rows, err := s.Rows(t.Context(), q); err != nil || len(rows) != 1 || string(rows[0].Data) != info.LastStatus {
		t.Errorf("session %q ends at %d, its rows are %+v, %v", id, last, rows, err)
	}
	return last
}

var tornAppends = flag.Int("sqlite.tornappends", 4, "how many appends are in the WAL that TestTornWAL cuts")

// TestTornWAL (F05) cuts the WAL of a store in use at every sector and opens what
// is left: what a power cut leaves of appends that were not yet acknowledged. Each
// log is a beginning of what was appended, in whole batches, and no shorter than a cut
// before it left it. That acknowledged appends are never cut is for synchronous=FULL,
// see TestPragmas.
func TestTornWAL(t *testing.T) {
	t.Parallel()
	const step = 512 // a disk writes a sector whole
	dir := t.TempDir()
	s := open(t, dir)
	defer mustClose(t, s)
	// The schema itself is in the WAL too: the first cuts go through its making, of
	// which one sector in eight is enough, each at another place of its page.
	schema := len(readFile(t, dir, "agentd.db-wal"))
	ids := []string{crashSession(0), crashSession(1)}
	mustCreate(t, s, ids...)
	ends := map[string]int64{}
	for i := range *tornAppends {
		id := ids[i%2]
		b := crashBatch(id, ends[id])
		mustAppend(t, s, b)
		ends[id] += int64(len(b.Records))
	}
	db, wal := readFile(t, dir, "agentd.db"), readFile(t, dir, "agentd.db-wal")
	if len(wal) < 100*step || len(db) > pageBytes {
		t.Fatalf("the database has %d bytes, the WAL %d: want all in the WAL", len(db), len(wal))
	}
	cuts := []int{len(wal)}
	for cut := 0; cut < len(wal); cut += step {
		if cut >= schema || cut%(8*step) == 0 {
			cuts = append(cuts, cut)
		}
	}
	slices.Sort(cuts)

	before := map[string]int64{}
	torn := filepath.Join(t.TempDir(), "torn")
	for i, cut := range cuts {
		if err := errors.Join(os.RemoveAll(torn), os.Mkdir(torn, 0o700)); err != nil {
			t.Fatal(err)
		}
		writeFile(t, torn, "agentd.db", db)
		left := wal[:cut]
		if i%8 == 0 && cut < len(wal) { // later sectors were written, this one holds what was there before
			left = slices.Concat(left, bytes.Repeat([]byte{0xa5}, step), wal[min(cut+step, len(wal)):])
		}
		writeFile(t, torn, "agentd.db-wal", left)
		s := open(t, torn)
		for _, id := range ids {
			if _, err := s.Head(t.Context(), id); errors.Is(err, store.ErrNoSession) && before[id] == 0 {
				continue
			}
			last := wholeBatches(t, s, id)
			if last < before[id] {
				t.Errorf("cut at %d, session %q ends at %d, though a cut before it left %d", cut, id, last, before[id])
			}
			before[id] = last
		}
		mustClose(t, s)
		checkIntegrity(t, filepath.Join(torn, "agentd.db"))
	}
	t.Logf("%d cuts", len(cuts))
	for id, end := range ends {
		if before[id] != end {
			t.Errorf("uncut, session %q ends at %d, want %d", id, before[id], end)
		}
	}
}

func checkIntegrity(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path, pragmas("query_only(1)")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	var said string
	if err := db.QueryRowContext(t.Context(), "PRAGMA quick_check").Scan(&said); err != nil || said != "ok" {
		t.Errorf("integrity check says %q, %v", said, err)
	}
}

func readFile(t testing.TB, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}
