package permit

import (
	"regexp"
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
	"env": {values: "uCSaP", long: []string{"unset", "chdir", "argv0"}, sets: true},
	"sudo": {
		values: "ugpCcrtThRUD", sets: true, rights: true,
		long: []string{
			"user", "group", "prompt", "chdir", "chroot", "host", "role", "type", "close-from", "command-timeout",
		},
	},
	"doas":     {values: "uC", rights: true},
	"pkexec":   {long: []string{"user"}, rights: true},
	"chroot":   {skip: 1, rights: true},
	"nohup":    {},
	"setsid":   {},
	"nice":     {values: "n", long: []string{"adjustment"}},
	"ionice":   {values: "cnpPu", long: []string{"class", "classdata"}},
	"taskset":  {skip: 1},
	"stdbuf":   {values: "ioe", long: []string{"input", "output", "error"}},
	"time":     {values: "fo", long: []string{"format", "output"}},
	"timeout":  {values: "sk", long: []string{"signal", "kill-after"}, skip: 1},
	"gtimeout": {values: "sk", long: []string{"signal", "kill-after"}, skip: 1},
	"exec":     {values: "a"},
	"command":  {},
	"builtin":  {},
	"busybox":  {},
	"toybox":   {},
	"xargs": {
		values: "aEIJLnPRSsd", rights: true,
		long: []string{"arg-file", "max-args", "max-procs", "max-chars", "delimiter", "process-slot-var"},
	},
	"parallel":   {values: "jNS", long: []string{"jobs", "max-args", "sshlogin"}, rights: true},
	"strace":     {values: "eopsu", rights: true},
	"ltrace":     {values: "eopsu", rights: true},
	"unshare":    {values: "RwSG", rights: true},
	"nsenter":    {values: "tSG", long: []string{"target", "setuid", "setgid"}, rights: true},
	"flock":      {skip: 1, values: "wE", long: []string{"timeout", "wait", "conflict-exit-code"}},
	"caffeinate": {values: "tw"},
	"watch":      {values: "nq", long: []string{"interval", "equexit"}, rights: true},
	"runuser":    {values: "ugG", long: []string{"user", "group", "supp-group"}, rights: true},

	"chrt":             {values: "TPD", skip: 1, rights: true},
	"systemd-run":      {values: "puEMH", long: []string{"property", "unit", "setenv"}, rights: true},
	"xvfb-run":         {values: "efnpsw", rights: true},
	"setpriv":          {rights: true},
	"fakeroot":         {values: "lisbu", rights: true},
	"unbuffer":         {rights: true},
	"dbus-run-session": {rights: true},
	"noglob":           {rights: true},
	"nocorrect":        {rights: true},
	"!":                {rights: true}, // behind time
}

// takes reports whether the word behind a flag is its value.
func (w *wrapper) takes(flag string) bool {
	if long, ok := strings.CutPrefix(flag, "--"); ok {
		return slices.Contains(w.long, long)
	}
	at := strings.IndexAny(flag, w.values) // the first that has a value has the rest of the word
	return at > 0 && at == len(flag)-1
}

var gitFlags = wrapper{values: "Cc", long: []string{"git-dir", "work-tree", "namespace", "config-env"}}

// bare is the text of a command without the flags of git that stand before the command of git, "" if there are none.
func (s *simple) bare() string {
	args := s.args()
	if s.name != "git" || len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return ""
	}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		n := 1
		if gitFlags.takes(args[0]) {
			n = 2
		}
		args = args[min(n, len(args)):]
	}
	return strings.Join(append([]string{s.name}, args...), " ")
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
		case text == "--", text == "-" && c.name == "env":
			continue
		case c.name == "command" && (text == "-v" || text == "-V"):
			return nil, false // it only looks for it
		case c.name == "env" && splits.MatchString(text):
			s.hide("env splits a text into a command")
			text = splits.ReplaceAllString(text, "")
			for _, more := range c.words[i+1:] {
				text += " " + more.text
			}
			s.read(text)
			return nil, false
		case c.name == "flock" && (text == "-c" || text == "--command") && i+1 < len(c.words):
			s.string(c.words[i+1])
			return nil, true
		case strings.HasPrefix(text, "-") && len(text) > 1:
			if c.name == "time" && writesTime.MatchString(text) {
				s.hide("its output goes to a file")
			}
			if w.takes(text) {
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

var (
	splits     = regexp.MustCompile(`^(-[^-uCaP]*S|--s[a-z-]*(=|$))`) // of env, up to the text that it splits
	writesTime = regexp.MustCompile(`^(-[^-f]*o|--o)`)
)

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
var runsInput = regexp.MustCompile(`^(python|perl|ruby|node|php|lua)[0-9.]*$`)

// fetchers are programs that fetch what somebody else has written.
var fetchers = []string{"curl", "wget", "fetch", "http", "https", "aria2c", "lynx"}

// fetches reports whether a fetch stands in a substitution of a word.
func (s *script) fetches(w *syntax.Word) bool {
	if p, ok := lone(w).(*syntax.ParamExp); ok && p.Param != nil && s.fetched[p.Param.Value] {
		return true
	}
	return s.fetchesIn(w)
}

// lone is the only part of a word, also in quotes; nil if there are more.
func lone(w *syntax.Word) syntax.Node {
	parts := w.Parts
	if len(parts) == 1 {
		if q, ok := parts[0].(*syntax.DblQuoted); ok {
			parts = q.Parts
		}
	}
	if len(parts) != 1 {
		return nil
	}
	return parts[0]
}

func (s *script) fetchesAny(words []word) bool {
	return slices.ContainsFunc(words, func(w word) bool { return w.node != nil && s.fetches(w.node) })
}
