package agentfile

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// MaxBytes is the size of the largest file.
const MaxBytes = 1 << 20

// maxProblems bounds the problems of one file.
const maxProblems = 50

// File is what a file says. It is immutable after Parse.
type File struct {
	// Name is the file's name, for messages.
	Name string
	// Agent is the tree.
	Agent *agentdv1.Agent
	// Tools are the tools of the file.
	Tools []*Tool

	places map[place]yamlfile.Position
}

// Tool is a tool that runs a command.
type Tool struct {
	// Tool is its declaration. Its timeout is how long the command may run.
	*agentdv1.Tool
	// Command is the program and its arguments; at least the program.
	Command []string
	// PassEnv names variables of the environment that the program gets though they
	// hold keys of model providers or secrets of agentd.
	PassEnv []string
}

// Declarations are the tools as the protocol has them.
func (f *File) Declarations() []*agentdv1.Tool {
	out := make([]*agentdv1.Tool, len(f.Tools))
	for i, t := range f.Tools {
		out[i] = t.Tool
	}
	return out
}

// place is a field of a message: index is that of an element, or -1; an empty
// field is the message itself.
type place struct {
	message any // the message's pointer
	field   string
	index   int
}

// at returns where a field stands, else where its message begins.
func (f *File) at(message any, field string, index int) yamlfile.Position {
	for _, p := range []place{{message, field, index}, {message, field, -1}, {message, "", -1}} {
		if pos, ok := f.places[p]; ok {
			return pos
		}
	}
	return start
}

// Problem is one thing that is wrong with a file.
type Problem struct {
	// File is the file's name.
	File string
	yamlfile.Position
	// Where is the agent's path, as in desk/writer, or the tool, as in tool greet;
	// may be empty.
	Where string
	// Message says what is wrong and what would be right.
	Message string
}

// String is file:line:column: where: message.
func (p Problem) String() string {
	at := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Where != "" {
		at += p.Where + ": "
	}
	return at + p.Message
}

// Problems is everything that is wrong with a file, in its order.
type Problems []Problem //nolint:errname // they are problems first

// Error has one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems and leaves out those that are too many.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return a.Compare(b.Position)
	})
	if len(ps) > maxProblems {
		more := ps[maxProblems]
		more.Where, more.Message = "", fmt.Sprintf("and %d more problems from here on", len(ps)-maxProblems)
		ps = append(ps[:maxProblems:maxProblems], more)
	}
	return ps
}

// Read reads a file. What is wrong with what it says is of type Problems.
func Read(name string) (*File, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	data, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	if err != nil {
		return nil, err // it names the file
	}
	return Parse(name, data)
}
