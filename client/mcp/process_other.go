//go:build !unix

package mcp

import "os/exec"

const (
	terminate = false
	kill      = true
)

// systemVariables are those without which programs of Windows do not run.
var systemVariables = []string{
	"APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP",
	"USERNAME", "USERPROFILE", "WINDIR",
}

func leadGroup(*exec.Cmd) {}

// signalGroup can only end the program itself, which is asked by the end of its input.
func signalGroup(cmd *exec.Cmd, force bool) {
	if force {
		_ = cmd.Process.Kill()
	}
}
