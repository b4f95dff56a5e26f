package sealed

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
)

// Config says where the master keys are. The zero value has none.
type Config struct {
	// KeysFile has a master key a line: an id, and 32 bytes in base64. The first one wraps data keys, the others
	// unwrap what they have wrapped before. Empty lines and those that begin with # say nothing.
	KeysFile string
	// Command is a program that wraps data keys in place of the first key of the file. It is run with the argument
	// wrap or unwrap, reads what to wrap or unwrap, and writes the result.
	Command string
}

// IsZero reports whether there is no master key.
func (c Config) IsZero() bool { return c == Config{} }

// byCommand is the name of what a command has wrapped; that of a key of the file is its id behind byFile.
const (
	byCommand = "command"
	byFile    = "key "
)

// masters wrap and unwrap data keys.
type masters struct {
	keys    []masterKey
	command string
}

// masterKey is a key of the file.
type masterKey struct {
	id  string
	key []byte
}

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// mostKeys is how many keys a file has at most, keysBytes how long it may be.
const (
	mostKeys  = 1000
	keysBytes = 1 << 20
)

// NewKey returns a line of a file of keys, with a new key.
func NewKey(id string) (string, error) {
	if !keyID.MatchString(id) {
		return "", fmt.Errorf("the id of a key is %q, want 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'", id)
	}
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails
	return id + " " + base64.StdEncoding.EncodeToString(key), nil
}

// Check returns what is wrong with the file of keys.
func (c Config) Check() error {
	_, err := c.masters()
	return err
}

func (c Config) masters() (*masters, error) {
	m := &masters{command: c.Command}
	if c.KeysFile == "" {
		return m, nil
	}
	text, err := readPrivate(c.KeysFile)
	if err == nil {
		m.keys, err = parseKeys(text)
	}
	if err != nil {
		return nil, fmt.Errorf("encryption keys: %s: %w", c.KeysFile, err)
	}
	return m, nil
}

// readPrivate reads a file that its owner alone may read. Windows has no such modes.
func readPrivate(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, errors.Unwrap(err) // without the name, which the caller adds
	}
	defer func() { _ = f.Close() }() // it is only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others than its owner can read or change it (mode %#o): want 0600 or 0400",
			info.Mode().Perm())
	case info.Size() > keysBytes:
		return nil, fmt.Errorf("it has %d bytes, want at most %d", info.Size(), keysBytes)
	}
	return io.ReadAll(io.LimitReader(f, keysBytes))
}

// parseKeys reads a file of keys. Its errors have no word of a line but the id, which could be the key.
func parseKeys(text []byte) (keys []masterKey, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("line %d has %d words, want two: an id, and 32 bytes in base64", n, len(fields))
		}
		k := masterKey{id: fields[0]}
		if k.key, err = base64.StdEncoding.DecodeString(fields[1]); err != nil || len(k.key) != keyBytes {
			return nil, fmt.Errorf("line %d: the second word is not 32 bytes in base64: "+
				"agentd encryption new-key writes such a line", n)
		}
		if !keyID.MatchString(k.id) {
			return nil, fmt.Errorf("line %d: the id is not 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'", n)
		}
		for _, other := range keys {
			if other.id == k.id || bytes.Equal(other.key, k.key) {
				return nil, fmt.Errorf("line %d: an earlier line has its id or its key", n)
			}
		}
		if keys = append(keys, k); len(keys) > mostKeys {
			return nil, fmt.Errorf("it has more than %d keys", mostKeys)
		}
	}
	switch {
	case lines.Err() != nil:
		return nil, lines.Err()
	case len(keys) == 0:
		return nil, errors.New("it has no key: agentd encryption new-key makes one")
	}
	return keys, nil
}

// none reports whether there is no master key.
func (m *masters) none() bool { return m.command == "" && len(m.keys) == 0 }

// current is the name of the master key that wraps.
func (m *masters) current() string {
	if m.command != "" {
		return byCommand
	}
	return byFile + m.keys[0].id
}

// has reports whether what the master key of a name has wrapped can be unwrapped.
func (m *masters) has(name string) bool {
	return name == byCommand && m.command != "" || m.key(name) != nil
}

func (m *masters) key(name string) *masterKey {
	for i := range m.keys {
		if byFile+m.keys[i].id == name {
			return &m.keys[i]
		}
	}
	return nil
}

// wrap wraps a data key by the current master key, and checks that it can be unwrapped.
func (m *masters) wrap(ctx context.Context, key []byte) (wrapped []byte, err error) {
	if m.command == "" {
		aead, err := newAEAD(m.keys[0].key)
		if err != nil {
			return nil, err
		}
		//nolint:gosec // the nonce is random: newAEAD
		return aead.Seal(nil, nil, key, place("data key\x00", m.current())), nil
	}
	if wrapped, err = runCommand(ctx, m.command, "wrap", key); err != nil {
		return nil, err
	}
	back, err := runCommand(ctx, m.command, "unwrap", wrapped)
	if err == nil && !bytes.Equal(back, key) {
		err = fmt.Errorf("encryption command %s: it unwraps something else than it was given to wrap", m.command)
	}
	return wrapped, err
}

// unwrap unwraps what the master key of a name has wrapped.
func (m *masters) unwrap(ctx context.Context, name string, wrapped []byte) ([]byte, error) {
	if name == byCommand && m.command != "" {
		key, err := runCommand(ctx, m.command, "unwrap", wrapped)
		if err == nil && len(key) != keyBytes {
			err = fmt.Errorf("encryption command %s: it has unwrapped %d bytes, want %d", m.command, len(key), keyBytes)
		}
		return key, err
	}
	with := m.key(name)
	if with == nil {
		return nil, errors.New("there is no such key")
	}
	aead, err := newAEAD(with.key)
	if err != nil {
		return nil, err
	}
	key, err := aead.Open(nil, nil, wrapped, place("data key\x00", name))
	if err != nil {
		return nil, fmt.Errorf("the encryption key %q is another one than that which wrapped the data key", with.id)
	}
	return key, nil
}
