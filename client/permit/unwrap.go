package permit

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// wrapper is a program that runs the command behind its own flags.
type wrapper struct {
	values string // short flags that have a value of their own
	long   []string
	skip   int  // words before the command, beside flags
	sets   bool // NAME=value may stand before the command
	rights bool // the command is not the same with it: a rule must cover both
}

var wrappers = map[string]wrapper{
	"env":        {values: "uCS", long: []string{"unset", "chdir", "split-string"}, sets: true},
	"sudo":       {values: "ugpCcrtThRUD", long: []string{"user", "group", "prompt", "chdir", "chroot", "host", "role", "type"}, sets: true, rights: true},
	"doas":       {values: "uC", rights: true},
	"pkexec":     {long: []string{"user"}, rights: true},
	"chroot":     {skip: 1, rights: true},
	"nohup":      {},
	"setsid":     {},
	"nice":       {values: "n", long: []string{"adjustment"}},
	"ionice":     {values: "cnpPu", long: []string{"class", "classdata"}},
	"taskset":    {skip: 1},
	"stdbuf":     {values: "ioe", long: []string{"input", "output", "error"}},
	"time":       {values: "fo", long: []string{"format", "output"}},
	"timeout":    {values: "sk", long: []string{"signal", "kill-after"}, skip: 1},
	"exec":       {values: "a"},
	"command":    {},
	"builtin":    {},
	"busybox":    {},
	"toybox":     {},
	"xargs":      {values: "aEIJLlnPRSsd", long: []string{"arg-file", "max-args", "max-procs", "max-lines", "max-chars", "delimiter", "replace"}, rights: true},
	"parallel":   {values: "jNS", rights: true},
	"strace":     {values: "eopsu", rights: true},
	"ltrace":     {values: "eopsu", rights: true},
	"unshare":    {rights: true},
	"nsenter":    {rights: true},
	"flock":      {skip: 1, values: "wE"},
	"caffeinate": {values: "tw"},
}

// unwrap returns the command that a wrapper runs. outer says that a rule for that command is enough.
func (s *script) unwrap(c *simple) (inner []word, outer bool) {
	w, ok := wrappers[c.name]
	if !ok {
		return nil, false
	}
	skip := w.skip
	for i := 1; i < len(c.words); i++ {
		text := c.words[i].text
		switch {
		case c.words[i].open && strings.HasPrefix(text, "-"):
			s.hide("the text does not tell which program it runs")
			return nil, false
		case text == "--":
			continue
		case c.name == "command" && (text == "-v" || text == "-V"):
			return nil, false // it only looks for it
		case c.name == "env" && (strings.HasPrefix(text, "-S") || strings.HasPrefix(text, "--split-string")):
			s.hide("env splits a text into a command")
			text = strings.TrimPrefix(strings.TrimPrefix(text, "--split-string="), "-S")
			for _, more := range c.words[i+1:] {
				text += " " + more.text
			}
			s.read(text)
			return nil, false
		case strings.HasPrefix(text, "--"):
			if slices.Contains(w.long, text[2:]) {
				i++
			}
		case strings.HasPrefix(text, "-") && len(text) > 1:
			if strings.ContainsRune(w.values, rune(text[len(text)-1])) {
				i++
			}
		case w.sets && strings.Contains(text, "=") && !strings.HasPrefix(text, "="):
			s.hide("it sets variables")
		case skip > 0:
			skip--
		default:
			return c.words[i:], !w.rights
		}
	}
	return nil, false
}

// unwrapped returns the command without its wrappers, and adds nothing to the script.
func (s *script) unwrapped(args []*syntax.Word) []word {
	t := &script{vars: s.vars, depth: maxDepth}
	words := make([]word, len(args))
	for i, a := range args {
		words[i] = s.constant(a)
	}
	for range maxDepth {
		if words[0].open {
			break
		}
		inner, _ := t.unwrap(&simple{name: program(words[0].text), words: words})
		if len(inner) == 0 {
			break
		}
		words = inner
	}
	return words
}

var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "rbash"}

func isShell(name string) bool { return slices.Contains(shells, name) }

// runsInput are programs that run what they read.
var runsInput = []string{"python", "python2", "python3", "perl", "ruby", "node", "php", "lua"}

// fetchers are programs that fetch what somebody else has written.
var fetchers = []string{"curl", "wget", "fetch", "http", "https", "aria2c", "lynx"}

// fetches reports whether a fetch stands in a substitution of a word.
func (s *script) fetches(w *syntax.Word) (found bool) {
	s.walk(w, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			words := s.unwrapped(call.Args)
			found = found || slices.Contains(fetchers, program(words[0].text))
		}
		return !found
	})
	return found
}

func (s *script) fetchesAny(words []word) bool {
	return slices.ContainsFunc(words, func(w word) bool { return w.node != nil && s.fetches(w.node) })
}
