package postgres

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// fullEnv names the folder of the child of TestFull.
const fullEnv = "AGENTD_TEST_FULL"

// TestFull: on a disk that is full an append is refused with store.ErrFull and leaves nothing, what was written is read,
// and with room the same append succeeds. The disk is a tmpfs of a process that has its mounts for itself.
func TestFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // PostgreSQL is somebody else's
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullChild$", "-test.v")
	cmd.Env = append(os.Environ(), fullEnv+"="+dir, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, os.ErrPermission) || strings.Contains(string(out), "may not mount"):
		t.Skip("this test mounts a disk, which needs root (CAP_SYS_ADMIN)")
	case strings.Contains(string(out), "PostgreSQL is missing"):
		t.Skip("PostgreSQL is missing")
	case err != nil || !strings.Contains(string(out), "--- PASS: TestFullChild"):
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestFullChild is the process of TestFull.
func TestFullChild(t *testing.T) {
	dir := os.Getenv(fullEnv)
	if dir == "" {
		t.Skip("TestFull runs it, in a process of its own")
	}
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=20m,mode=0777")
	}
	if err != nil {
		t.Fatalf("may not mount: %v", err)
	}
	server := pgserver.Start(t, pgserver.Options{})
	url := server.URL(t)
	server.Move(url, dir)
	s := openAt(t, url)
	defer mustClose(t, s)
	at := time.UnixMicro(1)
	batch := store.Batch{SessionID: "a", Create: &store.NewSession{ID: "a", CreatedAt: at, Creator: "local"}}
	const most = 10_000
	for ; batch.After < most; batch.After++ {
		kind, data := record.KindEvent, make([]byte, 8<<10)
		if batch.After == 0 {
			kind = record.KindTurnStarted
		}
		_, _ = rand.Read(data) // which do not become smaller
		batch.Records = []record.Record{{Seq: batch.After + 1, TurnID: "t", Kind: kind, Time: at, Data: data}}
		if err = s.Append(t.Context(), batch); err != nil {
			break
		}
		batch.Create = nil
	}
	if !errors.Is(err, store.ErrFull) || batch.After == 0 {
		t.Fatalf("append %d: %v, want %v", batch.After+1, err, store.ErrFull)
	}
	for range 3 { // it is not broken by being asked again
		if err := s.Append(t.Context(), batch); !errors.Is(err, store.ErrFull) {
			t.Errorf("append to a full disk: %v", err)
		}
	}
	head, err := s.Head(t.Context(), "a")
	recs, err2 := s.Read(t.Context(), "a", batch.After-1, 10)
	if err := errors.Join(err, err2); err != nil || head.LastSeq != batch.After || len(recs) != 1 {
		t.Errorf("on a full disk: %v, %+v, %d records", err, head, len(recs))
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=200m"); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), batch); err != nil {
		t.Errorf("with room: %v", err)
	}
	if head, err := s.Head(t.Context(), "a"); err != nil || head.LastSeq != batch.After+1 {
		t.Errorf("with room: %v, %+v", err, head)
	}
}
