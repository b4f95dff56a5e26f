package chat

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/apzuk3/agentd/internal/cli"
)

const (
	// maxWalked is how many names a completion reads, and maxOffers how many it offers.
	maxWalked, maxOffers = 20_000, 40
)

// complete goes on with the word before the cursor as far as there is one way to, and offers the others.
func (u *tui) complete() {
	before := string(u.input.text[:u.input.at])
	start := strings.LastIndexFunc(before, unicode.IsSpace) + 1
	word := before[start:]
	var ways []string
	switch {
	case start == 0 && strings.HasPrefix(word, "/"):
		ways = u.chat.names()
	case strings.HasPrefix(before, "/skill ") && strings.Count(before, " ") == 1 && u.chat.Skills != nil:
		for _, k := range u.chat.Skills.All() {
			ways = append(ways, printable(k.Name)...)
		}
	case strings.HasPrefix(word, "@"):
		if ways = files(u.chat.Root, word[1:]); len(ways) == 1 && !strings.HasPrefix(ways[0], word) {
			u.input.remove(start)
			word = ""
		}
	default:
		return
	}
	if !strings.HasPrefix(word, "@") {
		ways = slices.DeleteFunc(ways, func(w string) bool { return !strings.HasPrefix(w, word) })
	}
	u.offers = nil
	if len(ways) == 0 {
		return
	}
	common := ways[0]
	for _, w := range ways {
		for !strings.HasPrefix(w, common) {
			common = strings.ToValidUTF8(common[:len(common)-1], "")
		}
	}
	if len(ways) == 1 && !strings.HasSuffix(common, "/") {
		common += " "
	}
	if rest, ok := strings.CutPrefix(common, word); ok {
		u.input.insert(rest)
	}
	if len(ways) > 1 {
		u.offers = ways[:min(len(ways), maxOffers)]
	}
}

// names are the commands, with their slashes.
func (c *Chat) names() (out []string) {
	for line := range strings.Lines(help + screenHelp) {
		for _, word := range strings.Fields(line)[:2] {
			if strings.HasPrefix(word, "/") {
				out = append(out, strings.TrimRight(word, ","))
			}
		}
	}
	for _, own := range c.commands() {
		out = append(out, "/"+own)
	}
	if c.Prompts != nil {
		for _, name := range c.Prompts.Names() {
			out = append(out, "/"+cli.Clean(name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// files are the files of a project whose paths, or else whose names, begin so, each with its @.
func files(root, begin string) (out []string) {
	dir, name := path.Split(begin)
	if !filepath.IsLocal(filepath.FromSlash(dir)) && dir != "" {
		return nil
	}
	entries, _ := os.ReadDir(filepath.Join(root, filepath.FromSlash(dir))) // one that is not there has none
	for _, e := range entries[:min(len(entries), maxWalked)] {
		if strings.HasPrefix(e.Name(), name) && (name != "" || !strings.HasPrefix(e.Name(), ".")) {
			full := "@" + dir + e.Name()
			if e.IsDir() {
				full += "/"
			}
			out = append(out, printable(full)...)
		}
	}
	if len(out) > 0 || name == "" || dir != "" {
		return out
	}
	n := 0
	_ = filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
		if n++; n > maxWalked || len(out) >= maxOffers {
			return fs.SkipAll
		}
		if err != nil || e.IsDir() && at != root && skipped(e.Name()) {
			return fs.SkipDir
		}
		if rel, err := filepath.Rel(root, at); err == nil && !e.IsDir() && strings.HasPrefix(e.Name(), name) {
			out = append(out, printable("@"+filepath.ToSlash(rel))...)
		}
		return nil
	})
	return out
}

// skipped reports whether a completion leaves out what is in a folder.
func skipped(name string) bool {
	return strings.HasPrefix(name, ".") || name == "node_modules" || name == "vendor"
}

// printable is a name that a terminal shows as it is, or none.
func printable(name string) []string {
	if cli.Clean(name) != name || strings.ContainsAny(name, "\n\t") {
		return nil
	}
	return []string{name}
}

// Prompts are those of the MCP servers of a project, by "server:prompt".
type Prompts interface {
	Names() []string
	// Prompt renders one, with what stands behind the command.
	Prompt(ctx context.Context, server, name, arguments string) (text string, err error)
}

// promptMsg is a prompt of a server.
type promptMsg struct {
	text, typed string
	err         error
}

// ofServer asks a server for a prompt.
func (u *tui) ofServer(server, name, arguments, typed string) tea.Cmd {
	return func() tea.Msg {
		ctx, stop := context.WithTimeout(u.ctx, cancelTime)
		defer stop()
		text, err := u.chat.Prompts.Prompt(ctx, server, name, arguments)
		if err != nil {
			err = fmt.Errorf("/%s:%s: %w", server, name, err)
		}
		return promptMsg{text, typed, err}
	}
}

func (u *tui) prompted(m promptMsg) tea.Cmd {
	switch {
	case m.err != nil:
		u.note(m.err.Error())
	case strings.TrimSpace(m.text) == "":
		u.note("the prompt is empty")
	default:
		return u.submit(m.text, m.typed, false)
	}
	return nil
}
