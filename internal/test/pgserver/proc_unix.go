//go:build unix

package pgserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// supported says that servers run on this system.
const supported = true

// immediately has a server end without undoing what is under way: its next start does that.
const immediately = syscall.SIGQUIT

// ownGroup keeps the signals of a terminal from a process.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// other is who runs the server in place of root; ok is false if this process is not root.
func other() (uid, gid int, ok bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		gid, failed := strconv.Atoi(u.Gid)
		if errors.Join(err, failed) == nil {
			return uid, gid, true
		}
	}
	return 0, 0, false
}

// asOther has a command run as somebody else than root.
func asOther(cmd *exec.Cmd) {
	if uid, gid, ok := other(); ok {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
}

// hand gives files to who runs the server.
func hand(paths ...string) error {
	uid, gid, ok := other()
	if !ok {
		return nil
	}
	for _, path := range paths {
		if err := os.Chown(path, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// exited says whether a child of this process has ended, and reaps it.
func exited(pid int) bool {
	got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	return got == pid || errors.Is(err, syscall.ECHILD)
}

func kill(pid int) error { return signal(pid, syscall.SIGKILL) }

func thaw(pid int) error { return signal(pid, syscall.SIGCONT) }

// freeze returns when the process has stopped.
func freeze(pid int) error {
	if err := signal(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return poll(func() bool {
		s, ok := status(pid)
		return !ok || bytes.IndexByte([]byte("TtZX"), s.state) >= 0
	})
}

// signal sends a signal to a process that may have ended.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// gone says whether a process has ended, though perhaps nobody has waited for it.
func gone(pid int) bool {
	s, ok := status(pid)
	if ok {
		return s.state == 'Z' || s.state == 'X'
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// children are the children of a process, where there is /proc. Elsewhere they end with it, and do not freeze with it.
func children(parent int) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var pids []int
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		if s, ok := status(pid); ok && s.parent == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// procStatus is what /proc says of a process.
type procStatus struct {
	state  byte
	parent int
}

// status is not ok if the process is gone, or there is no /proc.
func status(pid int) (s procStatus, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // what precedes is the name, which may have spaces
	if len(fields) < 2 {
		return s, false
	}
	s.state = fields[0][0]
	s.parent, err = strconv.Atoi(string(fields[1]))
	return s, err == nil
}
