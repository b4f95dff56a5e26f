package sealed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/session/store/sqlite"
)

type sqlConn = sql.Conn

// A data key that an older master key has wrapped is wrapped anew at the start, and that key is not needed any more.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir)
	add(t, s, filled("x"))
	closed(t, s)
	inner := openInner(t, dir, sqlite.Config{})
	defer closed(t, inner)
	discard := slog.New(slog.DiscardHandler)
	for _, cfg := range []Config{{}, keys(t, "b")} {
		_, err := Open(t.Context(), inner, cfg, discard)
		if !errors.Is(err, ErrNoKeys) || !strings.Contains(err.Error(), `"a" (--encryption-keys)`) {
			t.Errorf("without the key: %v", err)
		}
	}
	wantFilled(t, New(inner, openRing(t, inner, keys(t, "b", "a"))), "x")
	wantFilled(t, New(inner, openRing(t, inner, keys(t, "b"))), "x")
	if _, err := Open(t.Context(), inner, keys(t, "a"), discard); !errors.Is(err, ErrNoKeys) {
		t.Errorf("with the old key: %v", err)
	}
	other := filepath.Join(t.TempDir(), "keys")
	line, err := NewKey("b")
	if err == nil {
		err = os.WriteFile(other, []byte(line), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), inner, Config{KeysFile: other}, discard); err == nil ||
		!strings.Contains(err.Error(), `the encryption key "b" is another one`) {
		t.Errorf("with another key of the same id: %v", err)
	}
}

// A file that is read again wraps the data keys anew; one that is wrong changes nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	inner := openInner(t, dir, sqlite.Config{})
	defer closed(t, inner)
	cfg, discard := keys(t, "a"), slog.New(slog.DiscardHandler)
	r := openRing(t, inner, cfg)
	s := New(inner, r)
	add(t, s, filled("x"))
	for text, want := range map[string]string{
		"":                        "it has no key",
		fixedKeys["b"]:            `"a" (--encryption-keys)`,
		fixedKeys["b"] + "\nnone": "has 1 words",
	} {
		if err := os.WriteFile(cfg.KeysFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Reload(t.Context(), discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		openRing(t, inner, keys(t, "a"))
	}
	if err := os.WriteFile(cfg.KeysFile, []byte(fixedKeys["b"]+"\n"+fixedKeys["a"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(t.Context(), discard); err != nil {
		t.Fatal(err)
	}
	add(t, s, filled("y"))
	for _, id := range []string{"x", "y"} {
		wantFilled(t, s, id)
		wantFilled(t, New(inner, openRing(t, inner, keys(t, "b"))), id)
	}
}

// Sealing all values again, while others write, leaves none that is clear or sealed by an old key, but for one that is
// damaged: with that the old keys stay.
func TestSeal(t *testing.T) {
	dir := t.TempDir()
	plain := openInner(t, dir, sqlite.Config{})
	for i := range 100 {
		add(t, plain, filled(fmt.Sprintf("clear-%d", i)))
	}
	closed(t, plain)
	s := openAt(t, dir)
	defer closed(t, s)
	inner, _ := s.Store.(*sqlite.Store)
	for i := range 100 {
		add(t, s, filled(fmt.Sprintf("old-%d", i)))
	}
	old := s.ring.current.id
	list := Sealings{inner}
	seal := func() (result string) {
		t.Helper()
		id, err := list.Add(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x, err := list.Open(t.Context())
		if err != nil || x.ID != id {
			t.Fatalf("sealing %+v, %v, want %d", x, err, id)
		}
		if result, err = s.ring.Seal(t.Context(), inner, ledgerOf(inner), x); err != nil {
			t.Fatal(err)
		}
		if x, err = list.Get(t.Context(), id); err != nil || x.Result != result || x.Ended.IsZero() {
			t.Fatalf("sealing %+v, %v", x, err)
		}
		if x, err = list.Open(t.Context()); err != nil || x.ID != 0 {
			t.Fatalf("what is open is %+v, %v", x, err)
		}
		return result
	}
	execute(t, inner, `UPDATE entries SET data = CAST(data || x'00' AS BLOB) WHERE session_id = 'old-7'`)
	if got := seal(); !strings.Contains(got, "1 values are damaged") || !strings.Contains(got, "old-7") {
		t.Errorf("with a damaged value: %s", got)
	}
	wantFilled(t, s, "old-8")
	if err := s.Delete(t.Context(), "old-7", 2); err != nil {
		t.Fatal(err)
	}
	ends := make(chan int)
	done := make(chan struct{})
	go func() {
		defer close(ends)
		for i := 0; ; i++ {
			select {
			case <-done:
				ends <- i
				return
			default:
				if err := s.Append(context.Background(), filled(fmt.Sprintf("new-%d", i))); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	got := seal()
	close(done)
	added := <-ends
	if !strings.Contains(got, "removed 2 old data keys") {
		t.Errorf("sealed: %s", got)
	}
	reopened := New(inner, openRing(t, inner, keys(t, "a")))
	if reopened.ring.known(old) != nil || reopened.ring.current.id <= old+1 {
		t.Errorf("the old data key %d is still there, or %d is not new", old, reopened.ring.current.id)
	}
	for i := range 100 {
		wantFilled(t, reopened, fmt.Sprintf("clear-%d", i))
		if i != 7 {
			wantFilled(t, reopened, fmt.Sprintf("old-%d", i))
		}
	}
	for i := range added {
		wantFilled(t, reopened, fmt.Sprintf("new-%d", i))
	}
	if n := clearValues(t, inner); n > 0 {
		t.Errorf("%d values are clear", n)
	}
}

// clearValues counts the values of a database that are not sealed.
func clearValues(t *testing.T, s *sqlite.Store) (n int) {
	t.Helper()
	err := s.View(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM records WHERE substr(data, 1, 1) <> x'00')
			+ (SELECT count(*) FROM entries WHERE substr(data, 1, 1) <> x'00')
			+ (SELECT count(*) FROM shared WHERE substr(value, 1, 15) <> CAST(' "agentd-sealed' AS BLOB))
			+ (SELECT count(*) FROM keys WHERE substr(content, 1, 13) <> 'agentd-sealed')`).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A data key seals a bounded number of values, which is counted before they are sealed, also across restarts.
func TestDataKeysAreBounded(t *testing.T) {
	inner := openInner(t, t.TempDir(), sqlite.Config{})
	defer closed(t, inner)
	cfg := keys(t, "a")
	used := map[uint32]int{}
	for range 10 {
		r, err := read(t.Context(), inner, cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.most, r.block = 20, 5
		for range 7 {
			key, err := r.take(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			used[key.id]++
		}
	}
	sum := 0
	for id, n := range used {
		if n >= 20 {
			t.Errorf("data key %d has sealed %d values, want below 20", id, n)
		}
		sum += n
	}
	if sum != 70 || len(used) < 4 || len(used) > 10 {
		t.Errorf("%d values of %d keys", sum, len(used))
	}
}

func TestKeysFile(t *testing.T) {
	good, again := fixedKeys["a"], fixedKeys["b"]
	for text, want := range map[string]string{
		"":                                       "it has no key",
		"# a\n":                                  "it has no key",
		"a":                                      "line 1 has 1 words",
		good + "\na b c":                         "line 2 has 3 words",
		good + "x":                               "line 1: the second word is not 32 bytes",
		"a c2hvcnQ=":                             "line 1: the second word is not 32 bytes",
		"a:b" + good[1:]:                         "line 1: the id is not",
		good + "\n" + good:                       "line 2: an earlier line has its id or its key",
		good + "\nc" + good[1:]:                  "line 2: an earlier line has its id or its key",
		good + "\n\n# old\n" + again:             "",
		" \t" + good + "  \r\n":                  "",
		good + "\n" + strings.Repeat("x", 70000): "too long",
	} {
		file := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Config{KeysFile: file}.masters()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "YWFh") {
			t.Errorf("the error has the key: %v", err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	cfg := keys(t, "a")
	if err := os.Chmod(cfg.KeysFile, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := cfg.masters(); err == nil || !strings.Contains(err.Error(), "want 0600 or 0400") {
		t.Errorf("a file that the group can read: %v", err)
	}
}

func TestCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program is a shell script")
	}
	program := func(text string) Config {
		file := filepath.Join(t.TempDir(), "kms")
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return Config{Command: file}
	}
	dir := t.TempDir()
	s := openAt(t, dir) // by a key of a file
	add(t, s, filled("x"))
	closed(t, s)
	inner := openInner(t, dir, sqlite.Config{})
	defer closed(t, inner)
	discard := slog.New(slog.DiscardHandler)
	// base64 is a KMS that hides nothing.
	kms := program(`case $1 in wrap) base64;; unwrap) base64 -d;; esac`)
	if _, err := Open(t.Context(), inner, kms, discard); !errors.Is(err, ErrNoKeys) {
		t.Errorf("without the key of the file: %v", err)
	}
	both := kms
	both.KeysFile = keys(t, "a").KeysFile
	for name, bad := range map[string]struct{ script, want string }{
		"fails":     {`echo no such key >&2; exit 3`, "exit status 3: no such key"},
		"nothing":   {`exit 0`, "it has written nothing"},
		"too much":  {`head -c 70000 /dev/zero`, "more than 65536 bytes"},
		"one way":   {`case $1 in wrap) base64;; unwrap) echo 12345678901234567890123456789012;; esac`, "something else"},
		"tells key": {`cat >&2; exit 1`, "has a key and is not shown"},
		"tells b64": {`base64 -w0 >&2; exit 1`, "has a key and is not shown"},
	} {
		cfg := program(bad.script)
		cfg.KeysFile = both.KeysFile
		if _, err := Open(t.Context(), inner, cfg, discard); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v, want %q", name, err, bad.want)
		}
	}
	wantFilled(t, New(inner, openRing(t, inner, both)), "x")
	wantFilled(t, New(inner, openRing(t, inner, kms)), "x")
	if _, err := Open(t.Context(), inner, Config{}, discard); !errors.Is(err, ErrNoKeys) ||
		!strings.Contains(err.Error(), "--encryption-command") {
		t.Errorf("without the command: %v", err)
	}
	wrong := program(`echo 12345678901234567890123456789012 | head -c 32`)
	if _, err := Open(t.Context(), inner, wrong, discard); err == nil ||
		!strings.Contains(err.Error(), "to another key than the one that was wrapped") {
		t.Errorf("a command with another key: %v", err)
	}
}

// TestHideKeys: a key is not shown whatever its bytes are, such as white space at its ends or parts of characters.
func TestHideKeys(t *testing.T) {
	for _, key := range []string{
		"\n" + strings.Repeat("k", keyBytes-2) + " ", "\xa9" + strings.Repeat("\xc3", keyBytes-1), strings.Repeat("\xff\t", keyBytes/2),
	} {
		for _, around := range []string{"", "\xc3", " it is: "} {
			if got := hideKeys(around+key+around, []byte(key)); got != "what it says has a key and is not shown" {
				t.Errorf("%q is shown: %q", key, got)
			}
		}
	}
	if got := hideKeys(" no such key\n", []byte("short")); got != "no such key" {
		t.Errorf("got %q", got)
	}
}
