package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown below the flags.
func (*completionCmd) Help() string {
	return `The script completes commands, flags, the values of flags that have few, and names of files.

Examples:

  source <(agentd completion bash)          # in ~/.bashrc

  source <(agentd completion zsh)           # in ~/.zshrc, behind compinit

  agentd completion fish | source           # in ~/.config/fish/config.fish`
}

// Run prints the script of a shell.
func (c *completionCmd) Run(p *process, ctx *kong.Context) error {
	places := completions(ctx.Model.Node, nil)
	if c.Shell == "fish" {
		return fishCompletion(p.stdout, places)
	}
	return bashCompletion(p.stdout, c.Shell == "zsh", places)
}

// completed is what may follow some words of a command line.
type completed struct {
	path  []string // commands, without agentd
	words []string // commands and flags
	// values are those of flags that have few; none for one whose value is free.
	values map[string][]string
	helps  map[string]string // of words, for shells that show them
}

// completions returns what may follow each command below one.
func completions(n *kong.Node, path []string) []completed {
	c := completed{path: path, values: map[string][]string{}, helps: map[string]string{}}
	var out []completed
	for _, child := range n.Children {
		if child.Hidden || child.Type != kong.CommandNode {
			continue
		}
		c.words = append(c.words, child.Name)
		c.helps[child.Name] = child.Help
		out = append(out, completions(child, append(slices.Clip(path), child.Name))...)
	}
	for _, group := range n.AllFlags(true) {
		for _, f := range group {
			flag := "--" + f.Name
			c.words = append(c.words, flag)
			c.helps[flag] = f.Help
			if f.IsBool() || f.IsCounter() {
				continue
			}
			c.values[flag] = nil
			if f.Enum != "" {
				c.values[flag] = slices.DeleteFunc(f.EnumSlice(), func(v string) bool { return v == "" })
			}
		}
	}
	slices.Sort(c.words)
	c.words = slices.Compact(c.words)
	return append([]completed{c}, out...)
}

// bashCompletion writes a function for bash; zsh takes it, too.
func bashCompletion(w io.Writer, zsh bool, places []completed) error {
	var b strings.Builder
	if zsh {
		b.WriteString("autoload -U +X bashcompinit && bashcompinit\n")
	}
	b.WriteString(`_agentd() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" at="" word i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    case "$at $word" in
`)
	for _, c := range places {
		if len(c.path) > 0 {
			above := strings.Join(c.path[:len(c.path)-1], " ")
			fmt.Fprintf(&b, "    %q) at=%q ;;\n", above+" "+c.path[len(c.path)-1], strings.Join(c.path, " "))
		}
	}
	b.WriteString("    esac\n  done\n  case \"$at $previous\" in\n")
	reply := func(place, from string) {
		fmt.Fprintf(&b, "  %q) COMPREPLY=($(compgen %s -- \"$current\")); return ;;\n", place, from)
	}
	for _, c := range places {
		for _, flag := range c.words {
			place := strings.Join(c.path, " ") + " " + flag
			if values, takes := c.values[flag]; takes && len(values) > 0 {
				reply(place, fmt.Sprintf("-W %q", strings.Join(values, " ")))
			} else if takes {
				reply(place, "-f")
			}
		}
	}
	b.WriteString("  esac\n  case \"$at\" in\n")
	for _, c := range places {
		fmt.Fprintf(&b, "  %q) COMPREPLY=($(compgen -W %q -- \"$current\")) ;;\n",
			strings.Join(c.path, " "), strings.Join(c.words, " "))
	}
	b.WriteString("  esac\n  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$current\"))\n}\n" +
		"complete -o filenames -F _agentd agentd\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// fishCompletion writes lines for fish.
func fishCompletion(w io.Writer, places []completed) error {
	var b strings.Builder
	quoted := func(s string) string {
		first, _, _ := strings.Cut(s, "\n")
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(first) + "'"
	}
	for _, c := range places {
		when := "__fish_use_subcommand"
		if len(c.path) > 0 {
			var seen []string
			for _, name := range c.path {
				seen = append(seen, "__fish_seen_subcommand_from "+name)
			}
			when = strings.Join(seen, "; and ")
		}
		for _, word := range c.words {
			flag, ok := strings.CutPrefix(word, "--")
			if !ok {
				fmt.Fprintf(&b, "complete -c agentd -f -n %s -a %s -d %s\n", quoted(when), word, quoted(c.helps[word]))
				continue
			}
			takes := ""
			if values, ok := c.values[word]; ok {
				if takes = " -r"; len(values) > 0 {
					takes = " -x -a " + quoted(strings.Join(values, " "))
				}
			}
			fmt.Fprintf(&b, "complete -c agentd -n %s -l %s%s -d %s\n",
				quoted(when), flag, takes, quoted(c.helps[word]))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
