package sqlite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var damageSeeds = flag.Int("sqlite.damageseeds", 40, "how many databases TestDamagedFiles damages")

// damageLimit is for calls that would never end. It is far above what any of them takes.
const damageLimit = 5 * time.Minute

// wholeFiles makes a database with logs, rows, labels, keys and shared values. It returns
// its files as a killed process leaves them, part of it in the WAL, and the logs.
func wholeFiles(t *testing.T) (db, wal []byte, logs map[string][]record.Record) {
	t.Helper()
	dir := t.TempDir()
	logs = map[string][]record.Record{}
	var s *Store
	fill := func(from, to int) {
		for n := from; n < to; n++ {
			id := fmt.Sprintf("session-%d", n)
			made := newSession(id)
			made.Labels, made.ClientRef = map[string]string{"n": fmt.Sprint(n)}, id
			if err := s.Create(t.Context(), made, &store.Key{Scope: "s", Name: id, SessionID: id}); err != nil {
				t.Fatal(err)
			}
			for after := int64(0); after < 12; {
				b := crashBatch(id, after)
				b.Shared = []store.SharedValue{{Scope: "app", Key: id, Value: []byte(fmt.Sprint(after))}}
				mustAppend(t, s, b)
				after += int64(len(b.Records))
				logs[id] = append(logs[id], b.Records...)
			}
		}
	}
	s = open(t, dir)
	fill(0, 6)
	mustClose(t, s)
	s = open(t, dir)
	defer mustClose(t, s)
	fill(6, 9)
	return readFile(t, dir, "agentd.db"), readFile(t, dir, "agentd.db-wal"), logs
}

// flip changes bits of a copy of data: a few anywhere, or all those of a sector.
func flip(rng *rand.Rand, data []byte) []byte {
	data = append([]byte(nil), data...)
	if rng.IntN(4) == 0 {
		const sector = 512
		at := rng.IntN(len(data)/sector) * sector
		for i := range sector {
			data[at+i] = byte(rng.Uint32())
		}
		return data
	}
	within := len(data)
	if rng.IntN(4) == 0 {
		within = min(within, pageBytes) // the header and the schema
	}
	for range 1 << rng.IntN(8) {
		data[rng.IntN(within)] ^= 1 << rng.IntN(8)
	}
	return data
}

// TestDamagedFiles (F41) damages the files of a store that is down: Open says what is wrong,
// or each call ends, and no log holds a record that nobody has appended.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	db, wal, logs := wholeFiles(t)
	outcomes := map[string]int{}
	for seed := range uint64(*damageSeeds) {
		rng := rand.New(rand.NewPCG(seed, 41))
		dir := t.TempDir()
		badDB, badWAL := db, wal
		switch rng.IntN(3) {
		case 0:
			badDB = flip(rng, db)
		case 1:
			badWAL = flip(rng, wal)
		default:
			badDB, badWAL = flip(rng, db), flip(rng, wal)
		}
		writeFile(t, dir, "agentd.db", badDB)
		writeFile(t, dir, "agentd.db-wal", badWAL)
		outcomes[useDamaged(t, seed, dir, logs)]++
	}
	t.Logf("%d databases: %v", *damageSeeds, outcomes)
}

// useDamaged opens a damaged database, makes each call, and returns what came of it.
func useDamaged(t *testing.T, seed uint64, dir string, logs map[string][]record.Record) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), damageLimit)
	defer cancel()
	s, err := openAs(ctx, filepath.Join(dir, "agentd.db"))
	if err != nil {
		if ctx.Err() != nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("seed %d: open: %v", seed, err)
		}
		return "refused"
	}
	defer func() { _ = s.Close() }() // folding the WAL in may fail, which is an end too
	outcome := "whole"
	ended := func(call string, err error) {
		if err == nil {
			return
		}
		outcome = "damaged"
		named := errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrFailed) || errors.Is(err, store.ErrMalformed) ||
			errors.Is(err, store.ErrNoSession) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)
		if ctx.Err() != nil || !named {
			t.Errorf("seed %d: %s: %v, want an error that nobody tries again", seed, call, err)
		}
	}
	_, err = s.Sessions(ctx, store.InfoQuery{Limit: 100})
	ended("Sessions", err)
	_, err = s.Sessions(ctx, store.InfoQuery{Limit: 100, Labels: map[string]string{"n": "3"}})
	ended("Sessions of a label", err)
	_, err = s.Rows(ctx, store.RowQuery{Kind: store.RowTurn, Limit: 100})
	ended("Rows", err)
	_, err = s.Shared(ctx, "app")
	ended("Shared", err)
	_, err = s.OpenTurns(ctx, "", 100)
	ended("OpenTurns", err)
	_, err = s.Idle(ctx, start.AddDate(1, 0, 0), 100)
	ended("Idle", err)
	_, err = s.Unindexed(ctx, "", 100)
	ended("Unindexed", err)
	for id, want := range logs {
		_, err = s.Info(ctx, id)
		ended("Info", err)
		_, err = s.Key(ctx, "s", id)
		ended("Key", err)
		got := readDamaged(ctx, s, id, int64(len(want)), ended)
		if len(got) > len(want) || len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) {
			t.Errorf("seed %d: session %q has records that nobody has appended", seed, id)
		}
	}
	for id, want := range logs {
		ended("Append", s.Append(ctx, crashBatch(id, int64(len(want)))))
		ended("Fork", s.Fork(ctx, store.Fork{From: id, Seq: 3, Into: newSession("fork of " + id)}))
		_, err = s.Update(ctx, id, store.Change{Labels: map[string]string{"a": "b"}})
		ended("Update", err)
		ended("Delete", s.Delete(ctx, id, int64(len(want))))
	}
	ended("Ping", s.Ping(ctx))
	return outcome
}

// readDamaged reads a log as far as that is possible.
func readDamaged(ctx context.Context, s *Store, id string, last int64, ended func(string, error)) (all []record.Record) {
	for after := int64(0); after <= last; {
		recs, err := s.Read(ctx, id, after, 4)
		ended("Read", err)
		if err != nil || len(recs) == 0 {
			return all
		}
		all = append(all, recs...)
		after = recs[len(recs)-1].Seq
	}
	return all
}

// TestDamagedRecord: a record that was changed in the file, or is not there, is an error
// for those who read it; records before it, and other sessions, are as they were.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"another text":    `UPDATE records SET data = CAST('{}' AS BLOB) WHERE session_id = 'bad' AND seq = 3`,
		"another kind":    `UPDATE records SET kind = 'tool_call' WHERE session_id = 'bad' AND seq = 3`,
		"another turn":    `UPDATE records SET turn_id = 'other' WHERE session_id = 'bad' AND seq = 3`,
		"another time":    `UPDATE records SET time = time + 1 WHERE session_id = 'bad' AND seq = 3`,
		"of another":      `UPDATE records SET session_id = 'bad', seq = 3 WHERE session_id = 'good' AND seq = 6`,
		"missing":         `DELETE FROM records WHERE session_id = 'bad' AND seq = 3`,
		"missing, to end": `DELETE FROM records WHERE session_id = 'bad' AND seq >= 3`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir)
			mustCreate(t, s, "bad", "good")
			mustAppend(t, s, batchOf("bad", 0, 5, 10))
			mustAppend(t, s, batchOf("good", 0, 6, 10))
			mustClose(t, s)
			if name == "of another" {
				execSQL(t, dir, `DELETE FROM records WHERE session_id = 'bad' AND seq = 3`)
			}
			execSQL(t, dir, damage)
			s = open(t, dir)
			defer mustClose(t, s)
			if recs, err := s.Read(t.Context(), "bad", 0, 2); err != nil || len(recs) != 2 {
				t.Errorf("what is before the damage: %d records, %v", len(recs), err)
			}
			for _, after := range []int64{0, 2} {
				if recs, err := s.Read(t.Context(), "bad", after, 10); !errors.Is(err, store.ErrDamaged) &&
					!(name == "missing, to end" && after == 0 && len(recs) == 2) {
					t.Errorf("after %d: %d records, %v, want %v", after, len(recs), err, store.ErrDamaged)
				}
			}
			if recs, err := s.Read(t.Context(), "good", 0, 5); err != nil || len(recs) != 5 {
				t.Errorf("the other log: %d records, %v", len(recs), err)
			}
		})
	}
}

// TestSumsOfForks: a record of a fork has the sum of its own session, one from before
// there were sums has none.
func TestSumsOfForks(t *testing.T) {
	t.Parallel()
	dir := databaseOf(t, []string{"00001_logs.sql", "00002_purge.sql", "00003_index.sql"},
		`INSERT INTO sessions (id, created_at, last_seq) VALUES ('old', 1, 1)`,
		`INSERT INTO records (session_id, seq, turn_id, kind, time, data) VALUES ('old', 1, 't', 'event', 1, x'01')`)
	s := open(t, dir)
	defer mustClose(t, s)
	mustAppend(t, s, batchOf("old", 1, 40, 10))
	if err := s.Fork(t.Context(), store.Fork{From: "old", Seq: 35, Into: newSession("fork")}); err != nil {
		t.Fatal(err)
	}
	if n := lastSeq(t, s, "fork"); n != 35 {
		t.Errorf("the fork ends at %d", n)
	}
	var sums int
	err := s.readers.QueryRowContext(t.Context(), `SELECT count(sum) FROM records WHERE session_id = 'fork'`).Scan(&sums)
	if err != nil || sums != 34 {
		t.Errorf("%d records of the fork have a sum, %v, want 34", sums, err)
	}
}
