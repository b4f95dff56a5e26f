package gestalt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// The files of a package.
const (
	// ManifestFile is the manifest, which a host takes as the source of a provider.
	ManifestFile = "manifest.yaml"
	schemaFile   = "agent_config.json"
	programFile  = "agentd"
)

// Artifact is a program for a system.
type Artifact struct {
	// OS and Arch are those of Go, Path that of the program beside the manifest.
	OS, Arch, Path string
	// SHA256 is the program's, in hexadecimal digits.
	SHA256 string
}

// semantic matches a semantic version, unbuilt what the build metadata of one must not have.
var (
	semantic = regexp.MustCompile(
		`^\d+\.\d+\.\d+(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
	unbuilt = regexp.MustCompile(`[^0-9A-Za-z-]+`)
)

// manifestVersion is a version as a host takes it: a semantic one. Others, such as a commit's, become metadata of one.
func manifestVersion(version string) string {
	version = strings.TrimPrefix(version, "v")
	if semantic.MatchString(version) {
		return version
	}
	return strings.TrimSuffix("0.0.0+"+unbuilt.ReplaceAllString(version, ""), "+")
}

// Manifest is the text of a manifest for programs of a version. A host takes sources of four segments or more.
func Manifest(version string, artifacts ...Artifact) string {
	var b strings.Builder
	fmt.Fprintf(&b, `kind: agent
source: github.com/apzuk3/agentd/agent/agentd
version: %q
displayName: agentd
description: Runs trees of agents; turns survive restarts.
spec:
  configSchemaPath: %s
entrypoint:
  artifactPath: %s
  args: [gestalt-provider]
artifacts:
`, manifestVersion(version), schemaFile, artifacts[0].Path)
	for _, a := range artifacts {
		fmt.Fprintf(&b, "  - os: %s\n    arch: %s\n    path: %s\n    sha256: %s\n", a.OS, a.Arch, a.Path, a.SHA256)
	}
	return b.String()
}

// WritePackage writes a folder with a program of this system, its manifest, and the schema of its configuration. The
// folder is made if there is none; files of these names are replaced.
func WritePackage(dir, program, version string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	name := programFile
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	sum, err := copyProgram(program, filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, schemaFile), []byte(ConfigSchema), 0o600); err != nil {
		return err
	}
	manifest := Manifest(version, Artifact{OS: runtime.GOOS, Arch: runtime.GOARCH, Path: name, SHA256: sum})
	return os.WriteFile(filepath.Join(dir, ManifestFile), []byte(manifest), 0o600)
}

// copyProgram copies a program, by way of another name, and returns the SHA-256 of what it has written.
func copyProgram(from, to string) (sum string, err error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(filepath.Dir(to), "agentd-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(out.Name()) }() // it has another name by then, unless something has failed
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, hash), in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if failed := out.Close(); err == nil {
		err = failed
	}
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	return hex.EncodeToString(hash.Sum(nil)), err
}
