package permit

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	// maxCommand is the longest command that is parsed, in bytes.
	maxCommand = 64 << 10
	// maxWork is how much of a script is looked at: its nodes, each as often as it is, and the bytes of its words.
	maxWork = 2 << 20
	// maxDepth is how deep scripts may stand in strings of scripts, and maxSimple how many simple commands may be in
	// one.
	maxDepth  = 8
	maxSimple = 4096
)

// script is what a command does, as far as its text tells.
type script struct {
	simples []simple
	hides   string // why no allow rule covers it; "" if rules can
	danger  string // what of the denylist is in it
	depth   int
	vars    map[string]string // constants; a name that has two values has none
	fetched map[string]bool   // variables that hold what is fetched
	all     bool              // it has gone to the root or to a home folder
	work    int               // what has been looked at, see maxWork
}

// hide notes why the text does not tell all.
func (s *script) hide(why string) {
	if s.hides == "" {
		s.hides = why
	}
}

func (s *script) forbid(what string) {
	if s.danger == "" {
		s.danger = what
	}
}

// parse reads a command.
func parse(command string) *script {
	s := &script{vars: map[string]string{}, fetched: map[string]bool{}}
	s.read(command)
	return s
}

// read parses a text and adds its commands. What is no script as a whole is forbidden: a shell runs it up to the place
// where it notices.
func (s *script) read(text string) {
	switch {
	case len(text) > maxCommand:
		s.forbid(fmt.Sprintf("it has more than %d bytes", maxCommand))
		return
	case s.depth >= maxDepth:
		s.forbid(fmt.Sprintf("it has scripts in scripts more than %d deep", maxDepth))
		return
	}
	if !s.works(len(text)) {
		return
	}
	s.depth++
	defer func() { s.depth-- }()
	file, err := parseAs(text, syntax.LangBash)
	if err != nil {
		var err2 error
		if file, err2 = parseAs(text, syntax.LangPOSIX); err2 != nil {
			s.forbid("it is no script that can be read: " + err.Error())
			return
		}
	}
	s.collect(file)
	s.visitAll(file)
	if len(s.simples) >= maxSimple {
		s.forbid(fmt.Sprintf("it has more than %d commands", maxSimple))
	}
}

// visitAll visits all nodes. A subshell that goes to another folder does so alone.
func (s *script) visitAll(file *syntax.File) {
	type place struct{ apart, all bool }
	var above []place
	syntax.Walk(file, func(n syntax.Node) bool {
		if n == nil {
			if last := above[len(above)-1]; last.apart {
				s.all = last.all
			}
			above = above[:len(above)-1]
			return true
		}
		if !s.works(1) {
			return false
		}
		apart := false
		switch n.(type) {
		case *syntax.Subshell, *syntax.CmdSubst, *syntax.ProcSubst:
			apart = true
		}
		above = append(above, place{apart, s.all})
		s.visit(n)
		if len(s.simples) >= maxSimple {
			above = above[:len(above)-1]
			return false
		}
		return true
	})
}

// works counts work and reports whether it may be done.
func (s *script) works(n int) bool {
	if s.work += n; s.work > maxWork {
		s.forbid("it takes too much to understand")
		return false
	}
	return true
}

// walk is syntax.Walk, as far as there may be work.
func (s *script) walk(n syntax.Node, visit func(syntax.Node) bool) {
	syntax.Walk(n, func(n syntax.Node) bool { return n == nil || s.works(1) && visit(n) })
}

func parseAs(text string, lang syntax.LangVariant) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(text), "")
}

// collect finds the variables that have one constant value.
func (s *script) collect(file *syntax.File) {
	s.walk(file, func(n syntax.Node) bool {
		a, ok := n.(*syntax.Assign)
		if !ok || a.Name == nil {
			return true
		}
		value := word{open: true}
		if a.Value != nil && lone(a.Value) != nil && s.fetchesIn(a.Value) {
			s.fetched[a.Name.Value] = true
		}
		switch {
		case a.Value != nil && !a.Append && a.Index == nil:
			value = s.constant(a.Value)
		case a.Value == nil && a.Array == nil && !a.Naked:
			value = word{}
		}
		if old, set := s.vars[a.Name.Value]; value.open || set && old != value.text {
			value.text = unknown
		}
		s.vars[a.Name.Value] = value.text
		return true
	})
}

// unknown is the value of a variable that has none that is known.
const unknown = "\x00"

func (s *script) visit(n syntax.Node) {
	switch n := n.(type) {
	case *syntax.CallExpr:
		if len(n.Assigns) > 0 {
			s.hide("it sets variables")
		}
		if len(n.Args) > 0 {
			s.call(n.Args)
		}
	case *syntax.DeclClause:
		s.hide("it sets variables")
	case *syntax.Stmt:
		s.redirects(n)
	case *syntax.BinaryCmd:
		if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
			s.pipe(n)
		}
	case *syntax.FuncDecl:
		s.bomb(n)
	case *syntax.ForClause, *syntax.LetClause:
		s.hide("it sets variables")
	case *syntax.TimeClause:
		s.time(n)
	case *syntax.ParamExp, *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.BinaryArithm, *syntax.UnaryArithm,
		*syntax.BinaryTest, *syntax.UnaryTest:
		s.compute(n)
	case *syntax.CoprocClause:
		s.hide("it starts a coprocess")
	}
}

// quiet are files that may be written to.
var quiet = []string{"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"}

// descriptor is what an output is duplicated to, or closed by.
var descriptor = regexp.MustCompile(`^([0-9]+-?|-)$`)

func (s *script) redirects(n *syntax.Stmt) {
	for _, r := range n.Redirs {
		if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
			s.hide("it sets variables")
		}
		switch r.Op {
		case syntax.DplOut, syntax.DplIn:
			w := s.constant(r.Word)
			if !w.open && descriptor.MatchString(w.text) {
				continue
			}
			if isDisk(w.text) {
				s.forbid("it writes to a disk itself")
			}
			s.hide("its output goes to a file")
		case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrInOut, syntax.RdrAll, syntax.AppAll:
			w := s.constant(r.Word)
			if !w.open && slices.Contains(quiet, w.text) {
				continue
			}
			if isDisk(w.text) {
				s.forbid("it writes to a disk itself")
			}
			s.hide("its output goes to a file")
		case syntax.RdrIn, syntax.WordHdoc, syntax.Hdoc, syntax.DashHdoc:
		default:
			s.hide("its output goes to a file")
		}
	}
	call, ok := n.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	inner := s.unwrapped(call.Args)
	if len(inner) == 0 || !isShell(program(inner[0].text)) {
		return
	}
	for _, r := range n.Redirs { // what a shell reads is a script
		switch {
		case r.Hdoc != nil:
			s.text(r.Hdoc)
		case r.Op == syntax.WordHdoc:
			s.text(r.Word)
		case r.Op == syntax.RdrIn:
			if s.fetches(r.Word) {
				s.forbid("it runs what it fetches")
			}
			s.hide("a shell reads a file")
		}
	}
}

// text reads a word that a shell runs.
func (s *script) text(w *syntax.Word) {
	if s.fetches(w) {
		s.forbid("it runs what it fetches")
	}
	if c := s.constant(w); !c.open {
		s.read(c.text)
		return
	}
	s.hide("a shell runs what the text does not tell")
}

// constant returns what a word is after all expansions, or as it is written.
func (s *script) constant(w *syntax.Word) word {
	var b strings.Builder
	if s.parts(&b, w.Parts, false) {
		return word{text: b.String(), node: w}
	}
	if !s.works(int(w.End().Offset() - w.Pos().Offset())) {
		return word{text: "?", open: true, node: w}
	}
	return word{text: printed(w), open: true, node: w}
}

// parts appends the constant value of parts of a word; false if there is none.
func (s *script) parts(b *strings.Builder, parts []syntax.WordPart, quoted bool) bool {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(unquote(p.Value, quoted))
		case *syntax.SglQuoted:
			if p.Dollar && strings.Contains(p.Value, `\`) {
				return false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if !s.parts(b, p.Parts, true) {
				return false
			}
		case *syntax.ParamExp:
			value, ok := s.value(p)
			if !ok {
				return false
			}
			b.WriteString(value)
		default:
			return false
		}
	}
	return true
}

// value returns the value of a variable. $HOME stays as it is.
func (s *script) value(p *syntax.ParamExp) (string, bool) {
	if p.Param == nil || p.Excl || p.Length || p.Width || p.Index != nil || p.Slice != nil || p.Repl != nil {
		return "", false
	}
	value, set := s.vars[p.Param.Value]
	if p.Param.Value == "HOME" && !set {
		return "$HOME", true // also ${HOME:?}
	}
	if p.Exp != nil {
		return "", false
	}
	return value, set && value != unknown
}

// unquote removes backslashes as the shell does.
func unquote(text string, quoted bool) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch {
		case text[i] == '\n':
		case quoted && !strings.ContainsRune("$`\"\\", rune(text[i])):
			b.WriteByte('\\')
			b.WriteByte(text[i])
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

func printed(w *syntax.Word) string {
	var b bytes.Buffer
	if err := syntax.NewPrinter(syntax.Minify(true)).Print(&b, w); err != nil {
		return "?"
	}
	return b.String()
}

// unexpanded reports whether the shell may make other words of a word that is no string: a pattern, braces, a tilde.
func unexpanded(w *syntax.Word) bool {
	for _, p := range w.Parts {
		if lit, ok := p.(*syntax.Lit); ok && strings.ContainsAny(unescaped.ReplaceAllString(lit.Value, ""), "*?[{~") {
			return true
		}
	}
	return false
}

var unescaped = regexp.MustCompile(`(?s)\\.`)

// program is the base name of a program.
func program(text string) string { return path.Base(text) }

// call adds a simple command, and those that it runs.
func (s *script) call(args []*syntax.Word) {
	var words []word
	for _, a := range args {
		w := s.constant(a)
		if splits := len(a.Parts) == 1 && !w.open; splits && isParam(a.Parts[0]) {
			for field := range strings.FieldsSeq(w.text) {
				words = append(words, word{text: field, node: a})
			}
			continue
		}
		words = append(words, w)
	}
	s.run(words)
}

// isParam reports whether a part of a word is a variable that is not quoted: the shell makes words of its value.
func isParam(p syntax.WordPart) bool {
	_, is := p.(*syntax.ParamExp)
	return is
}

// run adds the command that some words are.
func (s *script) run(words []word) {
	if len(words) == 0 || len(s.simples) >= maxSimple {
		return
	}
	c := simple{words: words}
	first := words[0]
	if first.open || first.text == "" || first.node != nil && unexpanded(first.node) {
		s.hide("the text does not tell which program it runs")
	} else {
		c.name = program(first.text)
	}
	inner, outer := s.within(&c)
	c.outer = outer
	s.simples = append(s.simples, c)
	s.judge(&c)
	if len(inner) > 0 && len(s.simples) < maxSimple {
		s.run(inner)
	}
}

// within returns the command that another one runs, if its words have it; outer says that the other one does nothing
// else. It reads scripts that stand in strings.
func (s *script) within(c *simple) (inner []word, outer bool) {
	switch name := c.name; {
	case name == "":
		return nil, false
	case isShell(name):
		return nil, s.shell(c)
	case runsInput.MatchString(name):
		for i, w := range c.words[1:] {
			if w.node == nil {
				continue
			}
			flag := strings.HasPrefix(c.words[i].text, "-") && strings.ContainsAny(c.words[i].text, "cer")
			if _, ok := lone(w.node).(*syntax.CmdSubst); ok && flag && s.fetches(w.node) {
				s.forbid("it runs what it fetches")
			}
		}
	case name == "eval":
		s.eval(c.words[1:])
	case name == ".", name == "source":
		if s.fetchesAny(c.words) {
			s.forbid("it runs what it fetches")
		}
		s.hide("it runs a script from a file")
	case name == "alias":
		s.hide("it sets an alias")
		for _, w := range c.words[1:] {
			if _, body, ok := strings.Cut(w.text, "="); ok && !w.open {
				s.read(body)
			}
		}
	case name == "trap" && len(c.words) > 2:
		if s.string(c.words[1]); c.words[1].text == "--" {
			s.string(c.words[2])
		}
	case slices.Contains(setters, name),
		name == "printf" && len(c.words) > 1 && strings.HasPrefix(c.words[1].text, "-v"):
		s.hide("it changes the shell that runs what follows")
	case name == "find":
		s.find(c)
	case name == "su", name == "runuser", name == "watch", name == "script", name == "parallel":
		s.hide("it runs what the text does not tell")
		for _, w := range c.words[1:] {
			if strings.ContainsAny(w.text, " ;|&") && !w.open {
				s.read(strings.TrimPrefix(strings.TrimPrefix(w.text, "--command="), "-c"))
			}
		}
	}
	return s.unwrap(c)
}

// setters are commands that change the shell itself.
var setters = []string{
	"export", "set", "unset", "enable", "hash", "shopt", "read", "typeset", "readonly", "local", "declare",
	"mapfile", "readarray", "getopts",
}

// otherShells have a syntax of their own: what is read of their scripts may not be all.
var otherShells = []string{"zsh", "fish", "csh", "tcsh"}

// takesValue reports whether the word behind a shell's flag is its value.
func takesValue(flag string) bool {
	return flag == "--rcfile" || flag == "--init-file" || !strings.HasPrefix(flag, "--") && len(flag) > 1 &&
		strings.ContainsAny(flag[:1], "-+") && strings.ContainsAny(flag[len(flag)-1:], "oO")
}

// shell reads the script of `sh -c`, and reports whether there is one.
func (s *script) shell(c *simple) bool {
	defer func(all bool) { s.all = all }(s.all)
	if slices.Contains(otherShells, c.name) {
		s.hide("it is a script for another shell")
	}
	for i := 0; i+1 < len(c.words); i++ {
		w := c.words[i+1]
		flag := strings.HasPrefix(w.text, "-") || strings.HasPrefix(w.text, "+")
		switch {
		case w.open && flag:
			s.hide("the text does not tell what a shell runs")
			return false
		case w.text == "--rcfile", w.text == "--init-file":
			s.hide("a shell runs a file or its input")
			i++
		case takesValue(w.text):
			i++
		case strings.HasPrefix(w.text, "--"):
		case !flag: // what follows is for the script in that file
			if w.node != nil && s.fetches(w.node) {
				s.forbid("it runs what it fetches")
			}
			s.hide("a shell runs a file or its input")
			return false
		case strings.Contains(w.text, "c"):
			rest := c.words[i+2:]
			for len(rest) > 1 && strings.HasPrefix(rest[0].text, "-") { // a flag, or the script
				s.string(rest[0])
				rest = rest[1:]
			}
			if len(rest) == 0 {
				s.hide("the text does not tell what a shell runs")
				return false
			}
			s.string(rest[0])
			return true
		}
	}
	s.hide("a shell runs a file or its input")
	return false
}

// string reads a script that stands in a word.
func (s *script) string(w word) {
	if w.node != nil && s.fetches(w.node) {
		s.forbid("it runs what it fetches")
	}
	if w.open {
		s.hide("a shell runs what the text does not tell")
		return
	}
	s.read(w.text)
}

func (s *script) eval(words []word) {
	if s.fetchesAny(words) {
		s.forbid("it runs what it fetches")
	}
	s.hide("it runs text as a command")
	var texts []string
	for i, w := range words {
		if w.open {
			return
		}
		if i == 0 && w.text == "--" {
			continue
		}
		texts = append(texts, w.text)
	}
	s.read(strings.Join(texts, " "))
}

// find adds the commands of -exec and its kin.
func (s *script) find(c *simple) {
	for i := 1; i < len(c.words); i++ {
		if !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, c.words[i].text) {
			if slices.Contains([]string{"-delete", "-fprint", "-fprint0", "-fprintf", "-fls"}, c.words[i].text) {
				s.hide("find deletes or writes files")
			}
			continue
		}
		begin := i + 1
		for i = begin; i < len(c.words) && c.words[i].text != ";" && c.words[i].text != "+"; i++ {
		}
		s.run(c.words[begin:min(i, len(c.words))])
	}
}
