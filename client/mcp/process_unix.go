//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

const (
	terminate = syscall.SIGTERM
	kill      = syscall.SIGKILL
)

var systemVariables []string

// leadGroup has the program lead a process group. The terminal's Ctrl-C does not reach it.
func leadGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup sends a signal to the program and to what it has started.
func signalGroup(cmd *exec.Cmd, signal syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, signal) }
