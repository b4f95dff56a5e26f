package main

import (
	"errors"
	"fmt"

	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/daemon"
)

type validateCmd struct {
	Files []string `arg:"" name:"FILE" help:"Files with an agent and its tools, YAML or JSON."`
}

// Help is shown below the flags.
func (*validateCmd) Help() string {
	return `The files are checked by the rules that a daemon has for trees and tools:
names, references, schemas, limits, builtin tools of models.
Nothing is run and nobody is asked; models are judged by their names, no key is needed.

Each problem is a line on standard error with its file, line, column and agent. The exit code is 2 if there is one.

Examples:

  agentd validate examples/agents/*.yaml`
}

// Run tells everything that is wrong with the files.
func (c *validateCmd) Run(p *process) error {
	bad := 0
	for _, name := range c.Files {
		file, err := agentfile.Read(name)
		if err == nil {
			var problems agentfile.Problems
			if problems, err = check(file); err == nil && len(problems) > 0 {
				err = problems
			}
		}
		if err == nil {
			if _, err := fmt.Fprintf(p.stdout, "%s: ok\n", name); err != nil {
				return err
			}
			continue
		}
		bad++
		fmt.Fprintln(p.stderr, err)
	}
	switch bad {
	case 0:
		return nil
	case 1:
		return &codedError{code: exitUsage, err: errors.New("1 file is invalid")}
	}
	return &codedError{code: exitUsage, err: fmt.Errorf("%d files are invalid", bad)}
}

// check has a file checked by a daemon's rules.
func check(file *agentfile.File) (agentfile.Problems, error) {
	rules, err := daemon.TreeRules()
	if err != nil {
		return nil, err
	}
	return file.Check(withPack(rules)), nil
}
