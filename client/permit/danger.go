package permit

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// What is below is refused in every mode: it destroys a computer or a home folder, or hands both to a stranger.

// judge notes what is forbidden of a command.
func (s *script) judge(c *simple) {
	switch name := c.name; {
	case name == "cd", name == "pushd":
		args := c.args()
		s.all = len(args) == 0 || isAll(args[len(args)-1])
	case name == "rm" && hasFlag(c, 'r', 'R', "recursive"):
		here := func(p string) bool { return slices.Contains([]string{".", "*", ".*"}, clean(p)) }
		if slices.ContainsFunc(c.args(), isAll) || s.all && slices.ContainsFunc(c.args(), here) {
			s.forbid("it removes all files")
		}
	case name == "dd":
		for _, a := range c.args() {
			if to, ok := strings.CutPrefix(a, "of="); ok && strings.HasPrefix(clean(to), "/dev/") && !isHarmless(clean(to)) {
				s.forbid("dd writes to a device")
			}
		}
	case name == "mkfs", strings.HasPrefix(name, "mkfs."), name == "mke2fs", name == "newfs":
		s.forbid("it makes a file system over what is there")
	case name == "shred", name == "wipefs":
		s.forbid("it wipes what is there")
	case name == "chmod", name == "chown", name == "chgrp":
		if hasFlag(c, 'R', 'R', "recursive") && slices.ContainsFunc(c.args(), isRoot) {
			s.forbid("it changes the rights of all files")
		}
	case name == "tee", name == "cp", name == "mv":
		if slices.ContainsFunc(c.args(), isDisk) {
			s.forbid("it writes to a disk itself")
		}
	}
}

// hasFlag reports whether a command has a flag, in one of its spellings.
func hasFlag(c *simple, short, other byte, long string) bool {
	for _, a := range c.args() {
		switch {
		case a == "--":
			return false
		case strings.HasPrefix(a, "--"):
			if len(a) > 2 && strings.HasPrefix("--"+long, a) {
				return true
			}
		case strings.HasPrefix(a, "-"):
			if strings.IndexByte(a, short) > 0 || strings.IndexByte(a, other) > 0 {
				return true
			}
		}
	}
	return false
}

// clean is a path without what makes it look like another one.
func clean(p string) string {
	if p == "" {
		return p
	}
	return path.Clean(p)
}

// isRoot reports whether a word is the root, or all that is in it.
func isRoot(p string) bool {
	if !strings.HasPrefix(p, "/") {
		return false
	}
	p = clean(p)
	return p == "/" || p == "/*" || p == "/.*" || p == "/**" || p == "/{*,.*}"
}

// isAll reports whether a word is the root or a home folder, or all that is in it.
func isAll(p string) bool {
	if isRoot(p) {
		return true
	}
	homes := []string{"~", "$HOME"}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		homes = append(homes, clean(home))
	}
	p = clean(p)
	for _, home := range homes {
		if rest, ok := strings.CutPrefix(p, home); ok && slices.Contains([]string{"", "/*", "/.*", "/**"}, rest) {
			return true
		}
	}
	return strings.HasPrefix(p, "~") && otherHome.MatchString(p)
}

var otherHome = regexp.MustCompile(`^~[a-z_][a-z0-9_-]*(/\*)?$`)

// isHarmless reports whether a file of /dev is no device that keeps anything.
func isHarmless(p string) bool {
	return slices.Contains(quiet, p) || slices.Contains([]string{"/dev/zero", "/dev/full"}, p) ||
		strings.HasPrefix(p, "/dev/fd/") || strings.HasPrefix(p, "/dev/pts/") || strings.HasPrefix(p, "/dev/shm/")
}

var disk = regexp.MustCompile(`^/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|dm-|loop|mem|kmem|port)`)

// isDisk reports whether a path is a disk, or memory.
func isDisk(p string) bool { return disk.MatchString(clean(p)) }

// pipe notes a pipe from the network into an interpreter.
func (s *script) pipe(n *syntax.BinaryCmd) {
	var stages []*syntax.Stmt
	var flatten func(st *syntax.Stmt)
	flatten = func(st *syntax.Stmt) {
		if b, ok := st.Cmd.(*syntax.BinaryCmd); ok && (b.Op == syntax.Pipe || b.Op == syntax.PipeAll) {
			flatten(b.X)
			flatten(b.Y)
			return
		}
		stages = append(stages, st)
	}
	flatten(n.X)
	flatten(n.Y)
	fetched := false
	for _, st := range stages {
		if fetched && s.interprets(st) {
			s.forbid("it runs what it fetches")
		}
		fetched = fetched || s.fetchesIn(st)
	}
}

// fetchesIn reports whether a part of a script fetches something.
func (s *script) fetchesIn(n syntax.Node) (found bool) {
	s.walk(n, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			found = found || slices.Contains(fetchers, program(s.unwrapped(call.Args)[0].text))
		}
		return !found
	})
	return found
}

// interprets reports whether a part of a script runs its input.
func (s *script) interprets(n syntax.Node) (found bool) {
	s.walk(n, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return !found
		}
		words := s.unwrapped(call.Args)
		name, plain := program(words[0].text), true
		for _, w := range words[1:] {
			plain = plain && (strings.HasPrefix(w.text, "-") || strings.HasPrefix(w.text, "/dev/"))
		}
		switch {
		case isShell(name):
			script := slices.ContainsFunc(words[1:], func(w word) bool {
				return strings.HasPrefix(w.text, "-") && !strings.HasPrefix(w.text, "--") && strings.Contains(w.text, "c")
			})
			found = found || !script && (plain || slices.ContainsFunc(words[1:], func(w word) bool { return strings.HasPrefix(w.text, "-s") }))
		case slices.Contains(runsInput, name):
			found = found || plain && !slices.ContainsFunc(words[1:], func(w word) bool { return len(w.text) > 1 && strings.ContainsAny(w.text[1:2], "cemV") })
		case name == "xargs", name == "source", name == ".":
			found = found || slices.ContainsFunc(words[1:], func(w word) bool { return isShell(program(w.text)) }) || name != "xargs"
		}
		return !found
	})
	return found
}

// bomb notes a function that starts itself twice.
func (s *script) bomb(n *syntax.FuncDecl) {
	if n.Name == nil {
		return
	}
	calls := func(n2 syntax.Node) (found bool) {
		s.walk(n2, func(m syntax.Node) bool {
			if call, ok := m.(*syntax.CallExpr); ok && len(call.Args) > 0 && s.constant(call.Args[0]).text == n.Name.Value {
				found = true
			}
			return !found
		})
		return found
	}
	s.walk(n.Body, func(m syntax.Node) bool {
		switch m := m.(type) {
		case *syntax.BinaryCmd:
			if (m.Op == syntax.Pipe || m.Op == syntax.PipeAll) && calls(m.X) && calls(m.Y) {
				s.forbid("it is a fork bomb")
			}
		case *syntax.Stmt:
			if m.Background && calls(m) {
				s.forbid("it is a fork bomb")
			}
		}
		return true
	})
}
