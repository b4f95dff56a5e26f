package main

import (
	"context"
	bytesOf "encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// TestRotationOfReplicas rotates the data keys of two servers again and again while both take turns, and while one of
// them is killed. All that was acknowledged opens, with the newest data key, which is the only one.
func TestRotationOfReplicas(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"AGENTD_STORE": pgserver.URL(t), "AGENTD_ENCRYPTION_KEYS": encryptionKey(t, t.TempDir(), "", "main"),
	}
	var servers [2]atomic.Pointer[served]
	for i := range servers {
		servers[i].Store(replica(t, env))
	}
	var done sync.Map // of the sessions of turns that were acknowledged
	var turns atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c := client.New(servers[i%2].Load().url)
				res, err := c.Do(ctx, agent("echo"), fmt.Sprintf("canary %d %d", i, n))
				if err == nil {
					done.Store(res.SessionID, fmt.Sprintf("canary %d %d", i, n))
					turns.Add(1)
				}
				c.CloseIdleConnections()
			}
		})
	}
	defer func() { stop(); wg.Wait() }()
	reseal := func() {
		t.Helper()
		before := turns.Load()
		code, out, errs := command(t, env, "encryption", "reseal")
		if code != exitOK || !strings.Contains(out, "removed ") {
			t.Fatalf("reseal: %d, %s%s", code, out, errs)
		}
		for limit := time.Now().Add(time.Minute); turns.Load() < before+8; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal("no turn ends")
			}
		}
	}
	for range 3 {
		reseal()
	}
	first := servers[0].Load()
	first.signal(syscall.SIGKILL)
	first.wait()
	reseal() // which waits until the dead one is known to be dead
	servers[0].Store(replica(t, env))
	reseal()
	stop()
	wg.Wait()

	code, out, errs := command(t, env, "export", "--tenant=", "-")
	if code != exitOK {
		t.Fatalf("export: %d, %s", code, errs)
	}
	done.Range(func(session, text any) bool {
		if !strings.Contains(out, session.(string)) || !strings.Contains(out, text.(string)) {
			t.Errorf("the export lacks %q of session %s", text, session)
			return false
		}
		return true
	})
	db, err := pgx.Connect(t.Context(), env["AGENTD_STORE"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(t.Context()) }()
	var keys, last int64
	if err := db.QueryRow(t.Context(), `SELECT count(*), max(id) FROM data_keys`).Scan(&keys, &last); err != nil || keys != 1 {
		t.Errorf("%d data keys are left, %v; want 1", keys, err)
	}
	older := bytesOf.BigEndian.AppendUint32([]byte("\x00agentd\x01"), uint32(last))
	var records, others int64
	err = db.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE substr(data, 1, $1) < $2) FROM records`,
		len(older), older).Scan(&records, &others)
	if err != nil || others > 0 || records == 0 {
		t.Errorf("%d of %d records are sealed with keys that are gone, %v", others, records, err)
	}
	t.Logf("%d turns, %d records", turns.Load(), records)
}
