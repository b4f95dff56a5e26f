package main

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/treetest"
)

type testCmd struct {
	Files  []string `arg:"" name:"FILE" help:"${test_files}"`
	Only   string   `name:"run" noenv:"" placeholder:"REGEXP" help:"${test_only}"`
	Update bool     `noenv:"" help:"${test_update}"`
}

// Help is shown below the flags.
func (*testCmd) Help() string {
	return `Cases of NAME.yaml stand in NAME.test.yaml: prompts, what the model answers, and what tools give.
Each runs on a daemon in memory that has no keys; no tool is run. What happens is compared with NAME.test.golden.
An answer or a result that nobody has asked for fails the case, and so does a call without a result.

The exit code is 0 when all cases have passed, 1 when one has not, and 2 for a wrong command line or an invalid file.

Examples:

  agentd test examples/agents/tests/greeter.test.yaml

  agentd test coder.yaml --run 'greets|asks'

  agentd test coder.yaml --update`
}

// Run runs the cases of the files.
func (c *testCmd) Run(p *process) error {
	only, err := regexp.Compile(c.Only)
	if err != nil {
		return usage("--run: %w", err)
	}
	var suites []*treetest.Suite
	for _, name := range c.Files {
		s, err := readSuite(name)
		if err != nil {
			return &codedError{code: exitUsage, err: err}
		}
		suites = append(suites, s)
	}
	ran, failed := 0, 0
	for _, s := range suites {
		golden, err := s.ReadGolden()
		if err != nil {
			return &codedError{code: exitUsage, err: err}
		}
		for _, one := range s.Cases {
			if !only.MatchString(one.Name) {
				continue
			}
			ran++
			passed, err := c.one(p, s, golden, one)
			if err != nil {
				return err
			}
			if !passed {
				failed++
			}
		}
		if c.Update {
			if err := golden.Write(s); err != nil {
				return err
			}
			continue
		}
		for _, name := range golden.Stale(s) {
			failed++
			fmt.Fprintf(p.stdout, "FAIL  %s: there is no case %q any more: "+
				"agentd test --update removes its transcript\n", cli.Clean(golden.Name), cli.Clean(name))
		}
	}
	switch {
	case ran == 0 && failed == 0:
		return usage("--run: no case has such a name")
	case failed > 0:
		return &codedError{code: exitError, err: fmt.Errorf("%d of %d cases have failed", failed, ran)}
	}
	p.notef("%d cases have passed", ran)
	return nil
}

// readSuite reads the cases of a file, and checks its tree.
func readSuite(name string) (*treetest.Suite, error) {
	name, err := treetest.FileOf(name)
	if err != nil {
		return nil, err
	}
	s, err := treetest.Read(name)
	if err != nil {
		return nil, err
	}
	problems, err := check(s.Tree)
	if err == nil && len(problems) > 0 {
		err = problems
	}
	return s, err
}

// one runs a case and says what came of it.
func (c *testCmd) one(p *process, s *treetest.Suite, golden *treetest.Golden, one *treetest.Case) (bool, error) {
	ctx, stop := p.context()
	defer stop()
	begun := time.Now()
	out, err := s.Run(ctx, one)
	switch {
	case ctx.Err() != nil:
		return false, errors.New("interrupted")
	case err != nil:
		return false, fmt.Errorf("%s: %s: %w", s.Name, one.Name, err)
	}
	diff := ""
	if c.Update && len(out.Wrong) == 0 {
		golden.Set(one, out.Transcript)
	} else {
		diff = golden.Diff(one, out.Transcript)
	}
	word := "ok  "
	if len(out.Wrong) > 0 || diff != "" {
		word = "FAIL"
	}
	fmt.Fprintf(p.stdout, "%s  %s: %s (%d ms)\n", word, cli.Clean(s.Name), cli.Clean(one.Name),
		time.Since(begun).Milliseconds())
	for _, w := range out.Wrong {
		fmt.Fprintf(p.stdout, "      %s\n", cli.Clean(w))
	}
	fmt.Fprint(p.stdout, cli.Clean(diff))
	return len(out.Wrong) == 0 && diff == "", nil
}
