package chat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/plainfile"
)

// maxCommand is the largest file of a command, in bytes.
const maxCommand = 256 << 10

const help = `/help          this
/mode [MODE]   what tools may do without being asked; an unknown one lists those that there are
/replan        ask for another plan before anything is changed
/session       the id of this session
/compact […]   have a summary stand for what was said so far, and say what it is to keep
/skill NAME …  load a skill, and say what stands behind it
/exit, /quit   leave; so do Ctrl+D, and Ctrl+C twice`

// screenHelp is what a screen has besides.
const screenHelp = `/queue         what waits for the turn that runs; /queue clear takes it back
/resume [ID]   go on with another session
/fork          go on with a copy of this one, up to a turn of it`

const keysHelp = `Enter          say it; while a turn runs, queue it
Alt+Enter      while a turn runs, say it to that turn
Ctrl+J         another line
Esc, Ctrl+C    cancel the turn
Ctrl+T         show what models think from now on, or fold it
Tab            complete a command, or a file behind @
Up, Down       what was said before`

// command does what a line says. It returns the prompt of a turn, and false when the line was none.
func (c *Chat) command(line string) (prompt string, ok bool) {
	name, rest, _ := strings.Cut(line, " ")
	if !strings.HasPrefix(name, "/") {
		return line, true
	}
	switch name {
	case "/exit", "/quit":
		c.left = true
	case "/help":
		c.sayf("%s", help)
		if c.show != nil {
			c.sayf("%s\n%s", screenHelp, keysHelp)
		}
		for _, own := range c.commands() {
			c.sayf("/%s", own)
		}
	case "/session":
		c.sayf("%s", c.Prompt.Session)
	case "/compact":
		ctx, cancel := context.WithTimeout(context.Background(), cancelTime)
		defer cancel()
		c.sayf("%s", c.compact(ctx, c.Prompt.Session, strings.TrimSpace(rest)))
	case "/skill":
		text, err := c.skill(strings.TrimSpace(rest))
		if err != nil {
			c.sayf("%v", err)
			return "", false
		}
		return text, true
	case "/mode", "/replan":
		c.modes(name, strings.TrimSpace(rest))
	default:
		text, err := c.own(name[1:], strings.TrimSpace(rest))
		if err != nil {
			c.sayf("%v", err)
			return "", false
		}
		return text, true
	}
	return "", false
}

// modes shows or changes what tools may do.
func (c *Chat) modes(name, mode string) {
	switch {
	case c.Modes == nil:
		c.sayf("this conversation has no tools that are asked about")
	case name == "/replan":
		c.Modes.Replan(c.Prompt.Session)
		c.sayf("another plan is asked for")
	case mode != "":
		if err := c.Modes.SetMode(mode); err != nil {
			c.sayf("%v", err)
			return
		}
		c.Prompt.PlanMode = mode == "plan"
		fallthrough
	default:
		c.sayf("mode %s", c.Modes.Mode())
	}
}

// compact has a summary replace what models of a session have read so far, before the next model call, and returns what
// came of it.
func (c *Chat) compact(ctx context.Context, id, focus string) string {
	if c.Conn == nil || id == "" {
		return "there is no session yet"
	}
	_, err := cli.Call(ctx, c.Conn, func(ctx context.Context) (int64, error) {
		return c.Conn.Session(id).Compact(ctx, focus)
	})
	if err != nil {
		return err.Error()
	}
	return "what was said so far is summarized before the next model call"
}

// skill returns the instructions of a skill, and what is said to it.
func (c *Chat) skill(rest string) (string, error) {
	name, arguments, _ := strings.Cut(rest, " ")
	var names []string
	if c.Skills != nil {
		for _, k := range c.Skills.All() {
			if k.Name == name {
				text := fmt.Sprintf("Use the skill %s. Its instructions:\n\n%s", k.Name, k.Instructions)
				return strings.TrimSpace(text + "\n\n" + strings.TrimSpace(arguments)), nil
			}
			names = append(names, k.Name)
		}
	}
	if len(names) == 0 {
		return "", errors.New("there are no skills: they are in .agents/skills, each in a folder with a SKILL.md")
	}
	return "", fmt.Errorf("there is no skill %.64q; there are: %s", name, strings.Join(names, ", "))
}

var commandName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// own returns the prompt of a command of the project. $ARGUMENTS in it is what stands behind the command.
func (c *Chat) own(name, arguments string) (string, error) {
	unknown := fmt.Errorf("there is no command /%.64s; /help lists those that there are", name)
	if !commandName.MatchString(name) {
		return "", unknown
	}
	at := filepath.Join(".agents", "commands", name+".md")
	data, err := plainfile.Read(c.Root, at, maxCommand)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", unknown
	case err != nil:
		return "", fmt.Errorf("%s: %w", at, err)
	}
	text := strings.ToValidUTF8(string(data), "\uFFFD")
	return strings.TrimSpace(strings.ReplaceAll(text, "$ARGUMENTS", arguments)), nil
}

// commands are the names of the project's commands.
func (c *Chat) commands() (names []string) {
	entries, err := os.ReadDir(filepath.Join(c.Root, ".agents", "commands"))
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), ".md"); ok && commandName.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
