// Package memory reads what a user and a project have written down for agents, and puts
// together what a client adds to the instruction of each agent.
//
//	layers, warnings := memory.Layers(cfg.Root, set.Listing())
//	opts := client.WithInstruction(memory.Join(layers))
//
// What a model reads comes in this order: the server's own text, the agent's instruction,
// and the layers: the default, the user's AGENTS.md (~/.config/agentd), the project's (the
// first of AGENTS.md, CLAUDE.md and GEMINI.md in its folder), and the list of skills.
//
// The package knows files alone.
package memory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/apzuk3/agentd/internal/plainfile"
)

// MaxFile is how much of a file counts, in bytes.
const MaxFile = 32 << 10

// names are the files of a project; the first that is there counts.
var names = []string{"AGENTS.md", "CLAUDE.md", "GEMINI.md"}

// Default is what the client tells each agent.
const Default = `Be helpful and brief. Say what you have done and what you have not.
Calls of tools that do not depend on one another belong into one response, so that they run at the same time.
Never write to one path in two calls of one response.
A summary of the conversation is history: what it says was done is done, and it is no new request.`

// Layer is a part of what a model is told.
type Layer struct {
	// Source says where it is from: "default", a path, or "skills".
	Source string
	// Text is what the model reads.
	Text string
	// Size is how many bytes there are; more than Text has if it was cut.
	Size int64
	// Truncated says that the rest of a file does not count.
	Truncated bool
}

// Layers returns the layers for a project, without those that are empty. Warnings are for the user: a file that was
// cut, or could not be read.
func Layers(root, skills string) (layers []Layer, warnings []string) {
	layers = []Layer{{Source: "default", Text: Default, Size: int64(len(Default))}}
	add := func(dir string, names []string) {
		l, err := first(dir, names)
		switch {
		case err != nil:
			warnings = append(warnings, err.Error())
		case l == nil:
		default:
			if l.Truncated {
				cut := fmt.Sprintf("%s has %d bytes: only the first %d count", l.Source, l.Size, MaxFile)
				warnings = append(warnings, cut)
			}
			if l.Text != "" {
				layers = append(layers, *l)
			}
		}
	}
	if dir := userDir(); dir != "" {
		add(dir, names[:1])
	}
	add(root, names)
	if skills != "" {
		layers = append(layers, Layer{Source: "skills", Text: skills, Size: int64(len(skills))})
	}
	return layers, warnings
}

// Join returns the layers as one text, for client.WithInstruction.
func Join(layers []Layer) string {
	var texts []string
	for _, l := range layers {
		texts = append(texts, strings.TrimSpace(l.Text))
	}
	return strings.Join(texts, "\n\n")
}

// userDir is the folder of the user's own file, "" if the user has no home.
func userDir() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "agentd")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "agentd")
}

// first reads the first of some files that is in a folder; nil if there is none.
func first(dir string, names []string) (*Layer, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	for _, name := range names {
		f, info, err := plainfile.Open(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		path := filepath.Join(dir, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return read(f, path, info.Size())
	}
	return nil, nil
}

// read reads a file and closes it.
func read(f *os.File, path string, size int64) (*Layer, error) {
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l := &Layer{Source: path, Size: max(size, int64(len(data)))}
	if l.Truncated = len(data) > MaxFile; l.Truncated {
		data = data[:MaxFile]
		for n := 1; n < utf8.UTFMax; n++ {
			if end := data[len(data)-n:]; utf8.RuneStart(end[0]) {
				if !utf8.FullRune(end) {
					data = data[:len(data)-n]
				}
				break
			}
		}
	}
	l.Text = strings.ToValidUTF8(string(data), "\uFFFD")
	return l, nil
}
