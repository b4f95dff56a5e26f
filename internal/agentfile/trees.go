package agentfile

import (
	"io"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// Trees is what a file with several trees says: agents in place of agent. Its tools need no command: somebody else runs
// them. A file with one tree is one of those, too.
type Trees struct {
	// Name is the file's name, for messages.
	Name string
	// Agents are the trees, at least one, in the order of the file. No two have the same name.
	Agents []*agentdv1.Agent
	// Tools are what the file says of tools.
	Tools []*agentdv1.Tool
}

// ReadTrees reads a file with trees. What is wrong with what it says is of type Problems.
func ReadTrees(name string) (*Trees, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	data, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	if err != nil {
		return nil, err // it names the file
	}
	return ParseTrees(name, data)
}

// ParseTrees reads the text of a file with trees. name is used in messages. Its errors are of type Problems.
func ParseTrees(name string, data []byte) (*Trees, error) {
	d := &decoder{file: &File{Name: name, places: map[place]yamlfile.Position{}}, noCommand: true}
	root, problems := yamlfile.Parse(data, limits)
	for _, p := range problems {
		d.problemf(p.Position, "%s", p.Message)
	}
	out := &Trees{Name: name}
	if root != nil {
		out.Agents = d.trees(root)
	}
	size := 0
	for _, a := range out.Agents {
		size += proto.Size(a)
	}
	if size > maxMessage {
		d.problemf(start, "the trees have %d bytes, at most %d are allowed", size, maxMessage)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	out.Tools = d.file.Declarations()
	return out, nil
}

// trees reads a file: several agents with tools, or what root reads.
func (d *decoder) trees(n *yamlfile.Node) (all []*agentdv1.Agent) {
	if n.Kind != yamlfile.Mapping || n.Get("agents") == nil {
		if d.root(n); d.file.Agent == nil {
			return nil
		}
		return []*agentdv1.Agent{d.file.Agent}
	}
	for _, p := range n.Pairs {
		switch {
		case p.Key == "tools":
			d.tools(p.Value)
		case p.Key != "agents":
			d.problemf(p.Pos, "%s", unknown(p.Key, []string{"agents", "tools"}))
		case p.Value.Kind != yamlfile.List || len(p.Value.Items) == 0:
			d.problemf(p.Value.Pos, "agents: want a list of at least one agent")
		default:
			for _, item := range p.Value.Items {
				a := d.agent(item)
				if slices.ContainsFunc(all, func(b *agentdv1.Agent) bool { return a.GetName() == b.GetName() }) {
					d.problemf(item.Pos, "two agents are called %q", a.GetName())
				}
				all = append(all, a)
			}
		}
	}
	return all
}
