package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func withNetwork(f func(path string) (string, error)) option {
	return func(o *options) { o.network = f }
}

// TestNetworkFiles (F40): a folder, or a database, on a network file system is refused before
// anything is made in it, unless the operator says otherwise.
func TestNetworkFiles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		shared  func(path string) bool
		allowed []option
		want    string
	}{
		"the folder":              {shared: func(path string) bool { return !strings.HasSuffix(path, ".db") }, want: "data is on NFS"},
		"the database":            {shared: func(path string) bool { return strings.HasSuffix(path, ".db") }, want: "agentd.db is on NFS"},
		"the operator wants that": {shared: func(string) bool { return true }, allowed: []option{func(o *options) { o.anyFiles = true }}},
		"neither":                 {shared: func(string) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			network := withNetwork(func(path string) (string, error) {
				if tc.shared(path) {
					return "NFS", nil
				}
				return "", nil
			})
			path := filepath.Join(dir, "agentd.db")
			for range 2 { // the second would find a lock that was left
				s, err := openAs(t.Context(), path, append([]option{network}, tc.allowed...)...)
				if err == nil {
					// On NFS and SMB, flock would keep SQLite's own locks out.
					if (s.hold.file == nil) != tc.shared(path) {
						t.Errorf("the database itself is locked: %v", s.hold.file != nil)
					}
					mustClose(t, s)
				}
				refused := errors.Is(err, ErrNetwork) && strings.Contains(err.Error(), tc.want) && strings.Contains(err.Error(), "choose a folder on a local disk")
				if tc.want == "" && err != nil || tc.want != "" && !refused {
					t.Errorf("open: %v, want %q", err, tc.want)
				}
			}
			if _, err := os.Stat(path); name == "the folder" && err == nil {
				t.Error("the database was made")
			}
		})
	}
}

// TestNetworkOf looks at what is mounted here.
func TestNetworkOf(t *testing.T) {
	t.Parallel()
	if name, err := networkOf("/proc"); name != "" || err != nil {
		t.Errorf("/proc is on %q, %v", name, err)
	}
	if _, err := networkOf(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("there is no such file, and no error")
	}
	var stat syscall.Stat_t
	mustDo(t, syscall.Stat("/proc", &stat))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	mustDo(t, err)
	if name := mountedAs(mounts, stat.Dev); name != "proc" {
		t.Errorf("/proc is mounted as %q", name)
	}
}

func TestMountedAs(t *testing.T) {
	t.Parallel()
	const mounts = `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
75 35 0:52 / /home/a\040b rw,nosuid,nodev,relatime shared:7 master:2 - fuse.sshfs me@host:/home rw,user_id=0
76 35 300:70000 / /data rw - fuseblk /dev/sdb1 rw
broken
`
	for dev, want := range map[string]string{"98:0": "ext3", "0:52": "fuse.sshfs", "300:70000": "fuseblk", "1:1": ""} {
		var major, minor uint64
		if _, err := fmt.Sscanf(dev, "%d:%d", &major, &minor); err != nil {
			t.Fatal(err)
		}
		made := minor&0xff | (major&0xfff)<<8 | (minor&^0xff)<<12 | (major&^0xfff)<<32
		if got := mountedAs([]byte(mounts), made); got != want {
			t.Errorf("device %s is %q, want %q", dev, got, want)
		}
	}
}
