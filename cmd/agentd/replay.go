package main

import (
	"encoding/json"
	"fmt"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

type replayCmd struct {
	ID   string `arg:"" name:"SESSION" help:"The session."`
	Data string `placeholder:"DIR" help:"Folder of the database. Default: agentd in the user's data folder."`
	JSON bool   `name:"json" noenv:"" help:"Write JSON, one object."`

	configFlag
	storeFlag `embed:""`
	encryptionFlags
}

// Help is shown below the flags.
func (*replayCmd) Help() string {
	return `Runs the turns of a session again with this version of agentd, on the session's own log:
responses of models, results of tools and resolutions of people are taken from there,
no model is called, no tool is run.
It tells the first record that this version would write otherwise,
and is meant for the time before an upgrade, on the new version.

The daemon of a folder has to be stopped. The folder is only read: the work is done on a copy, in the folder
for temporary files. A database of PostgreSQL is only read too, also while daemons use it.

The exit code is 0 when the log is equal, 1 when it is not or cannot be read.

Examples:

  agentd replay SESSION

  agentd replay SESSION --data /var/lib/agentd

  AGENTD_STORE=postgres://agentd@db/agentd agentd replay SESSION`
}

// replayed is the report as JSON.
type replayed struct {
	Session    string      `json:"session"`
	Equal      bool        `json:"equal"`
	Turns      int         `json:"turns"`
	Records    int         `json:"records"`
	Divergence *divergence `json:"divergence,omitempty"`
}

type divergence struct {
	Turn     string `json:"turn"`
	Seq      int64  `json:"seq"`
	Kind     string `json:"kind"`
	Field    string `json:"field,omitempty"`
	Recorded string `json:"recorded"`
	Replayed string `json:"replayed"`
}

// Run replays a session.
func (c *replayCmd) Run(p *process) error {
	data, url, err := p.database(c.Data, c.Store)
	if err != nil {
		return err
	}
	ctx, stop := p.context()
	defer stop()
	rep, err := daemon.Replay(ctx, daemon.Config{DataDir: data, StoreURL: url, Encryption: c.encryption()}, c.ID)
	if err != nil {
		return err
	}
	out := replayed{Session: c.ID, Equal: rep.Divergence == nil, Turns: rep.Turns, Records: rep.Records}
	text := "equal, " + counted(rep.Turns, "turn") + ", " + counted(rep.Records, "record")
	if d := rep.Divergence; d != nil {
		out.Divergence = &divergence{d.Turn, d.Seq, string(d.Kind), d.Field, d.Recorded, d.Replayed}
		text = "not equal: " + cli.Clean(d.String())
	}
	if c.JSON {
		err = json.NewEncoder(p.stdout).Encode(out)
	} else {
		_, err = fmt.Fprintln(p.stdout, text)
	}
	if err == nil && !out.Equal {
		err = &codedError{code: exitError}
	}
	return err
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
