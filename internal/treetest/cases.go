package treetest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// maxFile bounds a file of cases, in bytes.
const maxFile = 4 << 20

var limits = yamlfile.Limits{
	Bytes: maxFile, Tokens: maxFile, Depth: 64, Anchors: 100, Values: maxFile, Holds: "cases: a list of cases",
}

// endings are those of files of cases.
var endings = []string{".test.yaml", ".test.yml", ".test.json"}

// Suite is a file of cases.
type Suite struct {
	// Name is the file's.
	Name string
	// Tree is the file of the tree.
	Tree  *agentfile.File
	Cases []*Case
}

// Case is one case. Its fields are the keys of the file.
type Case struct {
	Name      string                         `yaml:"name"`
	Prompt    string                         `yaml:"prompt"`
	Prompts   []string                       `yaml:"prompts"`
	Model     string                         `yaml:"model"`
	Answers   []scripted.Response            `yaml:"answers"`
	AnswersOf map[string][]scripted.Response `yaml:"answers_of"`
	Tools     map[string][]Result            `yaml:"tools"`
	People    []Reply                        `yaml:"people"`
	State     map[string]any                 `yaml:"state"`

	tree    *client.Agent
	scripts map[string]*scripted.Script // by agent
	unused  map[string]bool             // agents whose script is ours and need not be played
}

// Result is what a tool gives.
type Result struct {
	Output string `yaml:"output"`
	Error  string `yaml:"error"`
}

// UnmarshalYAML takes a text for an output.
func (r *Result) UnmarshalYAML(decode func(any) error) error {
	if decode(&r.Output) == nil {
		return nil
	}
	type plain Result
	return decode((*plain)(r))
}

// Reply is what a person says to a question: one of the fields.
type Reply struct {
	Approve bool    `yaml:"approve"`
	Deny    *string `yaml:"deny"`
	Answer  *string `yaml:"answer"`
}

// UnmarshalYAML takes approve and deny as texts.
func (r *Reply) UnmarshalYAML(decode func(any) error) error {
	var word string
	if decode(&word) == nil {
		switch word {
		case "approve":
			r.Approve = true
		case "deny":
			r.Deny = new("")
		default:
			return fmt.Errorf("a reply is approve, deny, {deny: REASON} or {answer: TEXT}, got %.40q", word)
		}
		return nil
	}
	type plain Reply
	return decode((*plain)(r))
}

// resolution is the reply in the client's words.
func (r *Reply) resolution() *client.Resolution {
	switch {
	case r.Answer != nil:
		return client.Answer(*r.Answer)
	case r.Approve:
		return client.Approve()
	}
	return client.Deny(*cmp.Or(r.Deny, new("")))
}

// FileOf is the file of cases of a tree's file, or the file itself if it is one.
func FileOf(name string) (string, error) {
	if slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(name, end) }) {
		return name, nil
	}
	base := strings.TrimSuffix(name, filepath.Ext(name))
	for _, end := range endings {
		if info, err := os.Stat(base + end); err == nil && info.Mode().IsRegular() {
			return base + end, nil
		}
	}
	return "", fmt.Errorf("%s has no cases: write them to %s", name, base+endings[0])
}

// baseOf is the name of a file of cases without its ending.
func baseOf(name string) string {
	for _, end := range endings {
		if base, ok := strings.CutSuffix(name, end); ok {
			return base
		}
	}
	return name
}

// Read reads a file of cases and that of its tree. An error has a line for each problem: file:line:column: problem.
func Read(name string) (*Suite, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, err
	}
	s := &Suite{Name: name}
	var said struct {
		Agent string  `yaml:"agent"`
		Cases []*Case `yaml:"cases"`
	}
	if err := yamlfile.Decode(data, limits, &said); err != nil {
		return nil, placed(name, err)
	}
	if said.Agent == "" {
		for _, end := range []string{".yaml", ".yml", ".json"} {
			if path := baseOf(name) + end; said.Agent == "" && isFile(path) {
				said.Agent = filepath.Base(path)
			}
		}
	}
	if said.Agent == "" {
		return nil, fmt.Errorf("%s:1:1: there is no %s.yaml: say agent: FILE", name, filepath.Base(baseOf(name)))
	}
	path := said.Agent
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(name), path)
	}
	if s.Tree, err = agentfile.Read(path); err != nil {
		return nil, err
	}
	s.Cases = said.Cases
	root, _ := yamlfile.Parse(data, limits) // it was read before
	if err := s.check(root); err != nil {
		return nil, err
	}
	return s, nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// placed puts the file's name before each problem.
func placed(name string, err error) error {
	lines := strings.Split(err.Error(), "\n")
	for i := range lines {
		lines[i] = name + ":" + lines[i]
	}
	return errors.New(strings.Join(lines, "\n"))
}

// check finds what no type says of cases.
func (s *Suite) check(root *yamlfile.Node) error {
	var errs []error
	list := root.Get("cases")
	if list == nil || len(s.Cases) == 0 {
		return fmt.Errorf("%s:1:1: there are no cases", s.Name)
	}
	names := map[string]bool{}
	for i, c := range s.Cases {
		at := list.Items[i].Pos
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s:%d:%d: %s", s.Name, at.Line, at.Column, fmt.Sprintf(format, args...)))
		}
		if c == nil {
			fail("the case is empty")
			continue
		}
		c.Name = strings.TrimSpace(c.Name)
		switch {
		case c.Name == "":
			fail("the case has no name")
		case strings.ContainsAny(c.Name, "\r\n"):
			fail("the name of a case is one line")
		case names[c.Name]:
			fail("there are two cases of the name %q", c.Name)
		}
		names[c.Name] = true
		switch {
		case c.Prompt == "" && len(c.Prompts) == 0:
			fail("case %q has neither prompt nor prompts", c.Name)
		case c.Prompt != "" && len(c.Prompts) > 0:
			fail("case %q has both prompt and prompts", c.Name)
		case c.Prompt != "":
			c.Prompts = []string{c.Prompt}
		}
		if err := c.cast(s.Tree); err != nil {
			fail("case %q: %v", c.Name, err)
		}
	}
	return errors.Join(errs...)
}

// cast gives each agent of the tree its model.
func (c *Case) cast(file *agentfile.File) error {
	given := 0
	for _, is := range []bool{c.Model != "", c.Answers != nil, c.AnswersOf != nil} {
		if is {
			given++
		}
	}
	if given > 1 {
		return errors.New("model, answers and answers_of do not go together")
	}
	if c.Model != "" && c.Model != "echo" {
		return fmt.Errorf("the model is echo, got %q: what a model says is for answers", c.Model)
	}
	c.tree, c.scripts, c.unused = proto.CloneOf(file.Agent), map[string]*scripted.Script{}, map[string]bool{}
	agents := talkers(c.tree)
	if c.Answers != nil {
		if len(agents) != 1 {
			return fmt.Errorf("the tree has %d agents with a model: say answers_of: {NAME: answers}", len(agents))
		}
		c.AnswersOf = map[string][]scripted.Response{agents[0].GetName(): c.Answers}
	}
	known := map[string]bool{}
	for _, a := range agents {
		known[a.GetName()] = true
		if err := c.give(a); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.AnswersOf)) {
		if !known[name] {
			return fmt.Errorf("answers_of: the tree has no agent %q with a model", name)
		}
	}
	if len(c.scripts) > 0 {
		if _, err := scripted.New(scripted.Config{Scripts: c.scripts}); err != nil {
			return err
		}
	}
	return nil
}

// give gives an agent its model, and takes away all others that it might call.
func (c *Case) give(a *client.Agent) error {
	llm, name := a.GetLlm(), a.GetName()
	if c.Model == "" && c.AnswersOf == nil {
		if m := llm.GetModel(); m != "echo" && !strings.HasPrefix(m, "scripted/") || len(llm.GetFallbackModels()) > 0 {
			return fmt.Errorf("the agent %s has the model %s, which no test calls: "+
				"say answers, answers_of or model: echo", name, m)
		}
		return nil
	}
	llm.FallbackModels = nil
	if llm.Compaction != nil {
		llm.Compaction.Model = ""
	}
	if c.Model != "" {
		llm.Model = c.Model
		return nil
	}
	llm.Model = "scripted/" + name
	answers := c.AnswersOf[name]
	if len(answers) == 0 {
		c.unused[name] = true
		answers = []scripted.Response{{When: &scripted.When{}, Error: &scripted.Failure{
			Kind: "invalid", Message: "the case has no answers of " + name,
		}}}
	}
	c.scripts[name] = &scripted.Script{Responses: answers}
	return nil
}

// talkers are the agents of a tree that have a model.
func talkers(a *client.Agent) (all []*client.Agent) {
	if a.GetLlm() != nil {
		all = append(all, a)
	}
	for _, b := range agentfile.Children(a) {
		all = append(all, talkers(b)...)
	}
	return all
}
