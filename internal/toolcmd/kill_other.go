//go:build !unix

package toolcmd

import "os/exec"

// killGroup leaves it at killing the program.
func killGroup(*exec.Cmd) {}

func leadGroup(*exec.Cmd) {}

// killGroup kills the script alone.
func (s *Script) killGroup() { _ = s.cmd.Process.Kill() }
