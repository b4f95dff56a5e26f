package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/apzuk3/agentd/internal/daemon"
)

type recordCmd struct {
	Convert recordConvertCmd `cmd:"" help:"Convert recorded model calls from and to the form of ADK."`
}

type recordConvertCmd struct {
	File   string `arg:"" name:"FILE" help:"A file of recorded calls of either form; '-' is standard input."`
	Output string `short:"o" noenv:"" placeholder:"FILE" help:"Where to write. Default: standard output."`
}

// Help is shown below the flags.
func (*recordConvertCmd) Help() string {
	return `A file that agentd has recorded (--record-to) is written in the form in which programs on Google's ADK
for Go record model calls, and a file of that form in agentd's. Which one it is, its first line says.

Examples:

  agentd record convert calls.jsonl -o theirs.jsonl

  agentd record convert theirs.jsonl >scripts/theirs.jsonl`
}

// Run converts a file. What is there under the name of the output stays until all is converted.
func (c *recordConvertCmd) Run(p *process) error {
	from := p.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return &codedError{code: exitUsage, err: err}
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	done, err := c.convert(p, from)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	form := "the form of ADK"
	if !done.Ours {
		form = "agentd's form"
	}
	left := ""
	if done.Left > 0 {
		left = "; left out " + counted(done.Left, "canceled call")
	}
	p.notef("%s in %s%s", counted(done.Calls, "model call"), form, left)
	return nil
}

func (c *recordConvertCmd) convert(p *process, from io.Reader) (done daemon.ConvertedRecording, err error) {
	if c.Output == "" {
		out := bufio.NewWriter(p.stdout)
		if done, err = daemon.ConvertRecording(from, out); err == nil {
			err = out.Flush()
		}
		return done, err
	}
	f, err := os.CreateTemp(filepath.Dir(c.Output), "."+filepath.Base(c.Output)+".*") // for its owner alone
	if err != nil {
		return done, err
	}
	out := bufio.NewWriter(f)
	if done, err = daemon.ConvertRecording(from, out); err == nil {
		err = out.Flush()
	}
	if failed := f.Close(); err == nil {
		err = failed
	}
	if err == nil {
		err = os.Rename(f.Name(), c.Output)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return done, err
}
