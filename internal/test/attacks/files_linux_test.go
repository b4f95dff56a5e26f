package attacks

import (
	"bytes"
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// canary is in no file unless a session has it.
const canary = "a canary that sings alone"

// canaries has sessions say something, deletes them, and looks for it in all files.
func canaries(b *bed) {
	var ids []string
	for range times(50) {
		id := ""
		for range 4 {
			ex := execute(echo("canary", canary), strings.Repeat(canary+" ", 100), map[string]any{"own": canary})
			if id != "" {
				ex.SessionId = &id
			}
			turn, err := b.create(ex)
			if err != nil {
				b.Fatal(err)
			}
			id = b.until(turn, succeeded).GetSessionId()
		}
		ids = append(ids, id)
	}
	had := b.found(canary)
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	for _, id := range ids {
		if _, err := b.sessions.DeleteSession(ctx, connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: id})); err != nil {
			b.Fatal(err)
		}
	}
	b.peak = max(b.peak, b.memory())
	b.sayf("found %d times before %d sessions are deleted", had, len(ids))
}

// found is how often the files of the daemon have a text.
func (b *bed) found(text string) int {
	b.Helper()
	n := 0
	err := fs.WalkDir(os.DirFS(b.data), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(b.data, name))
		n += bytes.Count(data, []byte(text))
		return err
	})
	if err != nil {
		b.Error(err)
	}
	return n
}

// damaged damages the file while the daemon is down, first each page that a session
// stands in, then bits anywhere behind the schema: it starts or refuses to, and each
// call ends.
func damaged(b *bed) {
	session := ""
	for range 30 {
		turn, err := b.create(execute(echo("a", ""), strings.Repeat("word ", 500), nil))
		if err != nil {
			b.Fatal(err)
		}
		session = b.until(turn, succeeded).GetSessionId()
	}
	b.stop()
	path := filepath.Join(b.data, "agentd.db")
	whole := must(os.ReadFile(path))
	var notStarted, failedList, served int
	var longest time.Duration
	seeds := times(40)
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 6))
		bad := bytes.Clone(whole)
		if pages := pagesOf(bad, session); int(seed) < len(pages) {
			bad[pages[seed]] = 0xff // no page of a B-tree
		} else {
			for range 1 << rng.IntN(8) {
				at := len(bad)/10 + rng.IntN(len(bad)-len(bad)/10)
				bad[at] ^= 1 << rng.IntN(8)
			}
		}
		b.replace(path, bad)
		b.spawn()
		if err := b.ready(); err != nil {
			notStarted++
			b.kill()
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		from := time.Now()
		_, err := b.sessions.ListSessions(ctx, connect.NewRequest(&agentdv1.ListSessionsRequest{PageSize: 1000}))
		longest = max(longest, time.Since(from))
		switch {
		case ctx.Err() != nil:
			b.Errorf("seed %d: ListSessions does not end: %v", seed, err)
		case err != nil:
			failedList++
		default:
			served++
		}
		cancel()
		b.peak = max(b.peak, b.memory())
		b.kill()
	}
	b.sayf("of %d files %d are refused at the start; ListSessions fails on %d and answers on %d, after %d ms at most", seeds, notStarted, failedList, served, longest.Milliseconds())
	b.replace(path, whole)
	b.start()
}

// pagesOf are where the pages of a database begin that hold a text.
func pagesOf(db []byte, text string) []int {
	const size = 4096
	var at []int
	for page := size; page+size <= len(db); page += size { // the first one is the schema
		if bytes.Contains(db[page:page+size], []byte(text)) {
			at = append(at, page)
		}
	}
	return at
}

// replace replaces the database of a daemon that does not run.
func (b *bed) replace(path string, data []byte) {
	b.Helper()
	for _, side := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + side); err != nil && !os.IsNotExist(err) {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.Fatal(err)
	}
}
