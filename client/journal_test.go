package client

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

func journalAt(t *testing.T, dir string) *journal {
	t.Helper()
	j := newJournal(dir)
	if err := j.open(); err != nil {
		t.Fatal(err)
	}
	return j
}

func resultOf(key callKey, output string) *agentdv1.RunRequest_ToolCallResponse {
	return &agentdv1.RunRequest_ToolCallResponse{
		SessionId: key.session, ToolCallId: key.call, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: output},
	}
}

func keep(t *testing.T, j *journal, key callKey, output string) {
	t.Helper()
	if err := j.append(key, resultOf(key, output)); err != nil {
		t.Fatal(err)
	}
}

func TestJournalKeepsResults(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first := journalAt(t, dir)
	for i := range 5 {
		keep(t, first, callKey{"s", fmt.Sprint(i)}, fmt.Sprint("out ", i))
	}
	for _, j := range []*journal{first, journalAt(t, dir)} {
		for i := range 5 {
			key := callKey{"s", fmt.Sprint(i)}
			if !j.has(key) || !proto.Equal(j.find(key), resultOf(key, fmt.Sprint("out ", i))) {
				t.Errorf("%v: got %v", key, j.find(key))
			}
		}
		if other := (callKey{"t", "0"}); j.has(other) || j.find(other) != nil {
			t.Error("found what was never kept")
		}
	}
	info, err := os.Stat(first.own.Name())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestJournalTornAnywhere cuts a file after each of its bytes: the records that
// are whole are found, the others are not.
func TestJournalTornAnywhere(t *testing.T) {
	dir := t.TempDir()
	j := journalAt(t, dir)
	var ends []int64
	for i := range 3 {
		keep(t, j, callKey{"s", fmt.Sprint(i)}, "some output")
		ends = append(ends, j.size)
	}
	whole, err := os.ReadFile(j.own.Name())
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) + 1 {
		if err := os.WriteFile(j.own.Name(), whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		torn := journalAt(t, dir)
		for i, end := range ends {
			if key := (callKey{"s", fmt.Sprint(i)}); torn.has(key) != (int64(size) >= end) {
				t.Fatalf("%d bytes: has %d is %v", size, i, torn.has(key))
			}
		}
		if size == len(whole)-1 { // it continues in a file of its own
			keep(t, torn, callKey{"s", "new"}, "x")
			if !journalAt(t, dir).has(callKey{"s", "new"}) {
				t.Error("what came after a torn record is lost")
			}
		}
	}
}

// TestJournalSpoilt: a record whose bytes have changed is no result.
func TestJournalSpoilt(t *testing.T) {
	dir := t.TempDir()
	j := journalAt(t, dir)
	key := callKey{"s", "c"}
	keep(t, j, key, "important")
	data, err := os.ReadFile(j.own.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(j.own.Name(), bytes.Replace(data, []byte("important"), []byte("imp0rtant"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if j.find(key) != nil || j.has(key) || journalAt(t, dir).has(key) {
		t.Error("a spoilt record was taken")
	}
}

func TestJournalIsBounded(t *testing.T) {
	dir := t.TempDir()
	j := journalAt(t, dir)
	large := strings.Repeat("x", journalSegment)
	for i := range 2 * journalBytes / journalSegment {
		keep(t, j, callKey{"s", fmt.Sprint(i)}, large)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > journalBytes+journalSegment || len(j.index) != len(files) {
		t.Errorf("%d bytes in %d files, %d answers", total, len(files), len(j.index))
	}
	if j.has(callKey{"s", "0"}) || !j.has(callKey{"s", fmt.Sprint(2*journalBytes/journalSegment - 1)}) {
		t.Error("not the oldest ones were removed")
	}
}

// ends has the program of a journal end.
func ends(t *testing.T, j *journal) {
	t.Helper()
	if err := j.own.Close(); err != nil {
		t.Fatal(err)
	}
	j.own = nil
}

// journalNames returns the names of the files in a folder.
func journalNames(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestJournalOfManyPrograms: however many programs share a folder, none removes what
// another one that runs has kept.
func TestJournalOfManyPrograms(t *testing.T) {
	dir := t.TempDir()
	const programs = 150
	var all []*journal
	for i := range programs {
		j := journalAt(t, dir)
		keep(t, j, callKey{"s", fmt.Sprint(i)}, "x")
		all = append(all, j)
	}
	reopened := journalAt(t, dir)
	for i, j := range all {
		if key := (callKey{"s", fmt.Sprint(i)}); j.find(key) == nil || reopened.find(key) == nil {
			t.Errorf("the answer of program %d is gone", i)
		}
	}
}

// TestJournalReusesFiles: programs that run one after the other share one file, and
// each finds the results of those before, also behind a record that a kill has cut off.
func TestJournalReusesFiles(t *testing.T) {
	dir := t.TempDir()
	const programs = 30
	for i := range programs {
		j := journalAt(t, dir)
		keep(t, j, callKey{"s", fmt.Sprint(i)}, "x")
		if i%3 == 0 {
			if _, err := j.own.WriteAt([]byte("half of a rec"), j.size); err != nil {
				t.Fatal(err)
			}
		}
		ends(t, j)
	}
	j := journalAt(t, dir)
	if names := journalNames(t, dir); len(names) != 1 || len(j.index) != programs {
		t.Errorf("%d answers in %q", len(j.index), names)
	}
}

// TestJournalSparesTheLiving: a file that was old when another program looked is not
// removed once its program continues with it.
func TestJournalSparesTheLiving(t *testing.T) {
	dir := t.TempDir()
	live := journalAt(t, dir)
	keep(t, live, callKey{"s", "old"}, "x")
	old := time.Now().Add(-journalAge - time.Hour)
	if err := os.Chtimes(live.own.Name(), old, old); err != nil {
		t.Fatal(err)
	}
	other := journalAt(t, dir) // which would remove what is old
	keep(t, live, callKey{"s", "new"}, "x")
	keep(t, other, callKey{"s", "other"}, "x")
	for _, name := range []string{"old", "new", "other"} {
		if j := journalAt(t, dir); j.find(callKey{"s", name}) == nil {
			t.Errorf("the answer %q is gone", name)
		}
	}
	// A file that nobody holds, but was written since it was listed, stays too.
	ends(t, live)
	files, err := live.list()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(time.Minute)
	for _, file := range files {
		if err := os.Chtimes(file.path, now, now); err != nil {
			t.Fatal(err)
		}
		if gone, err := removeUnheld(file); gone || err != nil {
			t.Errorf("removed %s: %v, %v", file.path, gone, err)
		}
	}
}

func TestJournalForgetsOldFiles(t *testing.T) {
	dir := t.TempDir()
	var all []*journal
	for i := range 5 {
		j := journalAt(t, dir)
		keep(t, j, callKey{"s", fmt.Sprint(i)}, "x")
		all = append(all, j)
	}
	old := time.Now().Add(-journalAge - time.Hour)
	for _, j := range all {
		name := j.own.Name()
		ends(t, j)
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	j := journalAt(t, dir)
	keep(t, j, callKey{"s", "fresh"}, "x")
	if j = journalAt(t, dir); len(j.index) != 1 || !j.has(callKey{"s", "fresh"}) {
		t.Errorf("%d answers", len(j.index))
	}
}

// TestJournalForgetsManyFiles: of files that nobody holds there are at most journalFiles.
func TestJournalForgetsManyFiles(t *testing.T) {
	dir := t.TempDir()
	const more = 10
	at := time.Now().Add(-time.Hour)
	for i := range journalFiles + more {
		record, err := encodeRecord(resultOf(callKey{"s", fmt.Sprint(i)}, "x"))
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, fmt.Sprint(i, journalSuffix))
		at = at.Add(time.Second)
		if err := os.WriteFile(name, append([]byte(journalMagic), record...), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	j := journalAt(t, dir)
	if len(j.index) >= journalFiles || j.has(callKey{"s", "0"}) || !j.has(callKey{"s", fmt.Sprint(journalFiles + more - 1)}) {
		t.Errorf("%d answers of %d files", len(j.index), journalFiles+more)
	}
}

// TestJournalOfEarlierVersion: files without locks are read, never continued, and removed
// when they are old.
func TestJournalOfEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	record, err := encodeRecord(resultOf(callKey{"s", "earlier"}, "out"))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "2718281828.answers")
	written := append([]byte("agentdj1"), record...)
	if err := os.WriteFile(name, written, 0o600); err != nil {
		t.Fatal(err)
	}
	j := journalAt(t, dir)
	keep(t, j, callKey{"s", "new"}, "x")
	if got := j.find(callKey{"s", "earlier"}); got.GetOutput() != "out" {
		t.Errorf("got %v", got)
	}
	if data, err := os.ReadFile(name); err != nil || !bytes.Equal(data, written) {
		t.Errorf("the file has %d bytes, %v, want %d", len(data), err, len(written))
	}
	old := time.Now().Add(-journalAge - time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	if reopened := journalAt(t, dir); reopened.has(callKey{"s", "earlier"}) || !reopened.has(callKey{"s", "new"}) {
		t.Errorf("%d answers", len(reopened.index))
	}
}

// TestJournalWhoseFileIsGone: another process may have removed it.
func TestJournalWhoseFileIsGone(t *testing.T) {
	j := journalAt(t, t.TempDir())
	keep(t, j, callKey{"s", "1"}, "x")
	if err := os.Remove(j.own.Name()); err != nil {
		t.Fatal(err)
	}
	if j.find(callKey{"s", "1"}) != nil {
		t.Error("found in a file that is gone")
	}
	keep(t, j, callKey{"s", "2"}, "y")
	if j.find(callKey{"s", "2"}).GetOutput() != "y" {
		t.Error("not kept")
	}
}

// TestJournalBeginsOnceAtATime: of several who begin a call at the same time one does.
func TestJournalBeginsOnceAtATime(t *testing.T) {
	j := journalAt(t, t.TempDir())
	for i := range 20 {
		var firsts atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if first, err := j.begin(callKey{"s", fmt.Sprint(i)}); err != nil {
					t.Error(err)
				} else if first {
					firsts.Add(1)
				}
			})
		}
		wg.Wait()
		if n := firsts.Load(); n != 1 {
			t.Fatalf("%d have begun call %d", n, i)
		}
	}
}

// TestJournalBegins: a call begins once, whichever process asks, also when the first one has ended without a result.
func TestJournalBegins(t *testing.T) {
	dir := t.TempDir()
	j, key := journalAt(t, dir), callKey{"s", "1"}
	for i, want := range []bool{true, false} {
		if first, err := j.begin(key); first != want || err != nil {
			t.Errorf("%d: %v, %v", i, first, err)
		}
	}
	again := journalAt(t, dir)
	if first, err := again.begin(key); first || err != nil {
		t.Errorf("another process: %v, %v", first, err)
	}
	if again.has(key) || again.find(key) != nil {
		t.Error("what has only begun has a result")
	}
	for _, other := range []callKey{{"s", "2"}, {"t", "1"}} {
		if first, err := again.begin(other); !first || err != nil {
			t.Errorf("%v: %v, %v", other, first, err)
		}
	}
	var none *journal
	for range 2 {
		if first, err := none.begin(key); !first || err != nil {
			t.Errorf("without a journal: %v, %v", first, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if first, err := newJournal(dir).begin(key); err == nil {
		t.Errorf("what cannot be written begins: %v", first)
	}
}

func TestJournalOfNothing(t *testing.T) {
	var j *journal
	key := callKey{"s", "c"}
	if j.open() != nil || j.append(key, nil) != nil || j.has(key) || j.find(key) != nil {
		t.Error("a nil journal must do nothing")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := New("http://127.0.0.1:1", WithToolJournal(file))
	if _, err := c.Do(context.Background(), &agentdv1.Agent{Name: "a"}, "hi"); err == nil || !strings.Contains(err.Error(), "WithToolJournal") {
		t.Errorf("got %v", err)
	}
}

// FuzzJournalRecord: whatever a file holds, a record is either what was written
// or none.
func FuzzJournalRecord(f *testing.F) {
	record, err := encodeRecord(resultOf(callKey{"s", "c"}, "out"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record)
	f.Add(record[:5])
	f.Add([]byte("\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		msg, n := decodeRecord(data)
		if (msg == nil) != (n == 0) || n > len(data) {
			t.Fatalf("got %v of %d bytes from %d", msg, n, len(data))
		}
		if msg == nil {
			return
		}
		encoded, err := encodeRecord(msg)
		if err != nil {
			t.Fatal(err)
		}
		if back, _ := decodeRecord(encoded); !proto.Equal(back, msg) {
			t.Fatalf("got %v, want %v", back, msg)
		}
	})
}

// TestOutageProperty: the waits stay within their bounds, and end with the time.
func TestOutageProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := ReconnectPolicy{
			MaxElapsed: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "max")),
			Base:       time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "base")),
			Cap:        time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "cap")),
		}.withDefaults()
		out := outage{policy: policy}
		begin := time.Now()
		now := begin
		for try := range 200 {
			delay, ok := out.next(now, 0)
			if ok != (now.Sub(begin) < policy.MaxElapsed) {
				t.Fatalf("try %d after %s of %s: %v", try, now.Sub(begin), policy.MaxElapsed, ok)
			}
			if !ok {
				out.over()
				if _, ok := out.next(now, 0); !ok {
					t.Fatal("progress gives no new time")
				}
				return
			}
			limit := policy.Cap
			if try < 16 {
				limit = min(limit, policy.Base<<try)
			}
			if delay <= 0 || delay > limit {
				t.Fatalf("try %d: waits %s, at most %s", try, delay, limit)
			}
			now = now.Add(delay)
		}
	})
}
