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
	case name == "popd":
		s.all = false
	case name == "rm" && hasFlag(c, 'r', 'R', "recursive"):
		if slices.ContainsFunc(c.args(), isAll) || s.all && slices.ContainsFunc(c.args(), isHere) {
			s.forbid("it removes all files")
		}
	case name == "dd":
		for _, a := range c.args() {
			to, ok := strings.CutPrefix(a, "of=")
			if to = clean(to); ok && strings.HasPrefix(to, "/dev/") && !isHarmless(to) {
				s.forbid("dd writes to a device")
			}
		}
	case name == "mkfs", strings.HasPrefix(name, "mkfs."), name == "mke2fs", name == "newfs":
		s.forbid("it makes a file system over what is there")
	case name == "shred", name == "wipefs":
		s.forbid("it wipes what is there")
	case name == "chmod", name == "chown", name == "chgrp":
		if hasFlag(c, 'R', 'R', "recursive") && (slices.ContainsFunc(c.args(), isRoot) ||
			s.all && slices.ContainsFunc(c.args(), isHere)) {
			s.forbid("it changes the rights of all files")
		}
	case slices.Contains(writers, name):
		if slices.ContainsFunc(c.args(), isDisk) {
			s.forbid("it writes to a disk itself")
		}
	}
}

// writers are programs that write to what they are given.
var writers = []string{"tee", "cp", "mv", "install", "rsync", "truncate", "blkdiscard", "mkswap"}

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

// homeless stands for a home folder that is not known.
const homeless = "/~"

func homeDir() string {
	if home, err := os.UserHomeDir(); err == nil && path.Clean(home) != "/" {
		return clean(home)
	}
	return homeless
}

var (
	throughProc = regexp.MustCompile(`^/proc/(self|thread-self|[0-9]+)/root(/|$)`)
	// wild is a name that a pattern has nothing but signs for: what it matches is about everything.
	wild = regexp.MustCompile(`^([*?.{},!]|\[[^]]*\])*[*?\]]([*?.{},!]|\[[^]]*\])*$`)
)

// whole is the folder that a word is, or that it names all of: /, /. and /* are /.
func whole(p string) string {
	for _, home := range []string{"~", "$HOME"} {
		if rest, ok := strings.CutPrefix(p, home); ok && (rest == "" || rest[0] == '/') {
			p = homeDir() + rest
		}
	}
	p = clean(throughProc.ReplaceAllString(clean(p), "/"))
	for wild.MatchString(path.Base(p)) {
		p = path.Dir(p)
	}
	return p
}

// isHere reports whether a word is the current folder, or all that is in it.
func isHere(p string) bool { return whole(p) == "." }

// isRoot reports whether a word is the root, or all that is in it.
func isRoot(p string) bool { return whole(p) == "/" }

// isAll reports whether a word is the root, or a home folder or one above it, or all that is in it.
func isAll(p string) bool {
	at := whole(p)
	return at == "/" || at == homeDir() || strings.HasPrefix(at, "/") && strings.HasPrefix(homeDir(), at+"/") ||
		otherHome.MatchString(p)
}

var otherHome = regexp.MustCompile(`^~[a-z_][a-z0-9_-]*/?\*?$`)

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
	for i, st := range stages {
		if fetched && s.interprets(st) {
			s.forbid("it runs what it fetches")
		}
		call, ok := st.Cmd.(*syntax.CallExpr)
		if ok && i > 0 && len(call.Args) > 0 && readsScript(s.unwrapped(call.Args)) {
			s.feed(stages[i-1])
		}
		fetched = fetched || s.fetchesIn(st)
	}
}

// feed reads what a command says into a shell, where the text tells.
func (s *script) feed(st *syntax.Stmt) {
	for _, r := range st.Redirs {
		if r.Hdoc != nil {
			s.text(r.Hdoc)
		} else if r.Op == syntax.WordHdoc {
			s.text(r.Word)
		}
	}
	call, ok := st.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	words := s.unwrapped(call.Args)
	if name := program(words[0].text); name != "echo" && name != "printf" {
		return
	}
	var texts []string
	for _, w := range words[1:] {
		if w.open {
			return
		}
		if len(texts) > 0 || !strings.HasPrefix(w.text, "-") {
			texts = append(texts, strings.ReplaceAll(w.text, `\n`, "\n"))
		}
	}
	s.read(strings.Join(texts, " "))
}

// readsScript reports whether a command is a shell whose script is its input.
func readsScript(words []word) bool {
	if !isShell(program(words[0].text)) && strings.Trim(words[0].text, `"${}`) != "SHELL" {
		return false
	}
	for i := 1; i < len(words); i++ {
		t := words[i].text
		short := strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--")
		switch {
		case short && strings.Contains(t, "c"):
			return false
		case short && strings.Contains(t, "s"):
			return true
		case takesValue(t):
			i++
		case !strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "+"):
			return strings.HasPrefix(t, "/dev/") // else the script is in that file
		}
	}
	return true
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
		has := func(is func(text string) bool) bool {
			return slices.ContainsFunc(words[1:], func(w word) bool { return is(w.text) })
		}
		switch {
		case found:
		case readsScript(words):
			found = true
		case runsInput.MatchString(name):
			found = plain && !has(func(t string) bool { return len(t) > 1 && strings.ContainsAny(t[1:2], "cemV") })
		case name == "source", name == ".":
			found = true
		case name == "xargs":
			found = has(func(t string) bool { return isShell(program(t)) })
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
			call, ok := m.(*syntax.CallExpr)
			found = found || ok && len(call.Args) > 0 && s.constant(call.Args[0]).text == n.Name.Value
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
