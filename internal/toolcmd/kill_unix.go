//go:build unix

package toolcmd

import (
	"os/exec"
	"syscall"
)

// killGroup has the program lead a group of its own, which is killed as a whole.
// The terminal's Ctrl-C does not reach it: its caller decides what becomes of it.
func killGroup(cmd *exec.Cmd) {
	leadGroup(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// leadGroup has the program lead a group of its own.
func leadGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills all of the script's group.
func (s *Script) killGroup() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }
