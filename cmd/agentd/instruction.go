package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/client/memory"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/cli"
)

type instructionCmd struct {
	File string `arg:"" name:"FILE" help:"${run_file}"`

	daemonFlags `embed:""`
	packFlags   `embed:"" group:"tools"`
}

// Help is shown below the flags.
func (*instructionCmd) Help() string {
	return `For each agent with a model the layers come in the order in which the model reads them:
the text of the daemon, of which only the size and the hash are shown; the agent's own instruction;
and what agentd run adds here: the default, the user's AGENTS.md, that of the project (AGENTS.md,
CLAUDE.md or GEMINI.md), and the skills. Placeholders are not filled in.

Examples:

  agentd instruction examples/agents/greeter.yaml`
}

// layersOut is what --json prints of an agent.
type layersOut struct {
	Agent  string     `json:"agent"`
	Layers []layerOut `json:"layers"`
}

type layerOut struct {
	Source    string `json:"source"`
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
	Text      string `json:"text,omitempty"`
}

// Run prints the layers of all agents of a file.
func (c *instructionCmd) Run(p *process) error {
	file, err := agentfile.Read(c.File)
	if err != nil {
		return &codedError{code: exitUsage, err: err}
	}
	flags := c.packFlags
	flags.read = true
	project, err := flags.project(p, file)
	if err != nil {
		return err
	}
	defer project.pack.close()
	var server []layerOut
	if err := c.talk(p, func(t talk) error {
		known, err := t.conn.Client.Capabilities(t.ctx)
		if err == nil && known.InstructionBytes > 0 {
			server = []layerOut{{Source: "server", Bytes: known.InstructionBytes, SHA256: known.InstructionSHA256}}
		}
		return err
	}); err != nil {
		p.notef("the text of the daemon is not known: %v", err)
	}
	var out []layersOut
	for _, a := range llms(file.Agent, nil) {
		o := layersOut{a.path, slices.Clone(server)}
		if a.text != "" {
			o.Layers = append(o.Layers, layerOut{Source: "agent", Bytes: int64(len(a.text)), Text: a.text})
		}
		for _, l := range project.layers {
			o.Layers = append(o.Layers, layerOut{Source: l.Source, Bytes: l.Size, Truncated: l.Truncated, Text: l.Text})
		}
		out = append(out, o)
	}
	return c.print(p, out)
}

func (c *instructionCmd) print(p *process, out []layersOut) error {
	for _, a := range out {
		if c.json(p) {
			if err := p.printJSON(a); err != nil {
				return err
			}
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "== agent %s\n", cli.Clean(a.Agent))
		for _, l := range a.Layers {
			fmt.Fprintf(&b, "-- %s, %d bytes", cli.Clean(l.Source), l.Bytes)
			if l.Truncated {
				fmt.Fprintf(&b, ", cut at %d", memory.MaxFile)
			}
			if l.SHA256 != "" {
				fmt.Fprintf(&b, ", sha256 %s", cli.Clean(l.SHA256))
			}
			b.WriteString("\n")
			if l.Text != "" {
				b.WriteString(strings.TrimRight(cli.Clean(l.Text), "\n") + "\n")
			}
		}
		if _, err := fmt.Fprint(p.stdout, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// llmAgent is an agent with a model.
type llmAgent struct{ path, text string }

// llms are the agents with models of a tree.
func llms(a *agentdv1.Agent, above []string) (out []llmAgent) {
	path := append(slices.Clip(above), a.GetName())
	if a.GetLlm() != nil {
		out = append(out, llmAgent{strings.Join(path, "/"), a.GetLlm().GetInstruction()})
	}
	for _, b := range agentfile.Children(a) {
		out = append(out, llms(b, path)...)
	}
	return out
}
