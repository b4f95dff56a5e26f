package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

// databaseFlags are what backup, restore and check have in common.
type databaseFlags struct {
	Data string `placeholder:"DIR" help:"${backup_data}"`
	JSON bool   `name:"json" noenv:"" help:"Write JSON, one object a line."`

	configFlag
	encryptionFlags
}

type backupCmd struct {
	File string `arg:"" help:"The file to write."`
	databaseFlags
	Force        bool `noenv:"" help:"Replace the file if it exists."`
	KeepFindings bool `noenv:"" help:"${keep_findings}"`
}

// Help is shown below the flags.
func (*backupCmd) Help() string {
	return `Writes one consistent copy of the database, with all that the daemon has committed.
Copying the file agentd.db of a running daemon does not: what it has written last is in another file.
The daemon continues meanwhile. FILE gets its name when it is whole, checked and on disk;
a command that is killed leaves at most FILE.part-NUMBER, which can be removed.

Examples:

  agentd backup /backups/agentd-monday.db

  agentd backup --force --data /var/lib/agentd /backups/latest.db`
}

type restoreCmd struct {
	File string `arg:"" help:"The backup."`
	databaseFlags
	Force             bool `noenv:"" help:"${restore_force}"`
	KeepFindings      bool `noenv:"" help:"${keep_findings}"`
	AllowNetworkFiles bool `help:"${serve_allow_network_files}"`
}

// Help is shown below the flags.
func (*restoreCmd) Help() string {
	return `The daemon has to be stopped. The backup is copied, checked, and put in place in one step.
A file that is no agentd database, is damaged, or was written by a newer agentd is refused.
Clients keep nothing that happened after the backup: sessions continue where it ends.

Examples:

  agentd restore /backups/agentd-monday.db

  agentd restore --force --data /var/lib/agentd /backups/latest.db`
}

type checkCmd struct {
	File string `arg:"" optional:"" help:"A backup to check in place of the database."`
	databaseFlags
	storeFlag `embed:""`
}

// Help is shown below the flags.
func (*checkCmd) Help() string {
	return `Reads the whole database, also of a running daemon, and changes nothing. It checks the form of the file,
each record, the order of records, tool calls and their results, and that heads, lists, usage, keys and forks
are what the logs say. Each finding is a line: session, record, what is there and what would be right.

The exit code is 0 when there are no findings, 1 when there are, or when the database cannot be read.

Examples:

  agentd check

  agentd check --json /backups/agentd-monday.db`
}

// copying is what a command that works on a folder alone is about.
func (f *databaseFlags) copying(p *process) (c daemon.Copying, m *meter, err error) {
	data, err := p.onlyFolder(f.Data, "pg_dump and pg_restore make and read backups (docs/postgres.md)")
	if err == nil {
		c, m = f.reporting(p)
		c.DataDir = data
	}
	return c, m, err
}

// reporting writes findings to the standard output, and progress to a terminal.
func (f *databaseFlags) reporting(p *process) (c daemon.Copying, m *meter) {
	c.Encryption = f.encryption()
	m = &meter{w: p.stderr, on: p.tty.stderr, now: time.Now}
	c.Progress = m.show
	c.Finding = func(finding daemon.CheckFinding) {
		m.clear()
		if f.JSON {
			f.line(p, finding)
		} else {
			fmt.Fprintln(p.stdout, cli.Clean(finding.String()))
		}
	}
	return c, m
}

// line writes a value as a line of JSON.
func (f *databaseFlags) line(p *process, v any) { _ = json.NewEncoder(p.stdout).Encode(v) }

// meter shows how far a command has come, on one line of a terminal.
type meter struct {
	w     io.Writer
	on    bool
	now   func() time.Time
	last  time.Time
	shown bool
}

// show shows a number a few times a second.
func (m *meter) show(what string, done, total int64) {
	const every = 200 * time.Millisecond
	if !m.on || m.now().Sub(m.last) < every {
		return
	}
	m.last, m.shown = m.now(), true
	switch {
	case total > 0:
		fmt.Fprintf(m.w, "\r\x1b[K%s %d %%", what, done*100/total)
	default:
		fmt.Fprintf(m.w, "\r\x1b[K%s %s", what, counted(int(done), "record"))
	}
}

// clear removes the line.
func (m *meter) clear() {
	if m.shown {
		fmt.Fprint(m.w, "\r\x1b[K")
		m.shown = false
	}
}

// Run checks a database.
func (c *checkCmd) Run(p *process) error {
	of, meter := c.reporting(p)
	var err error
	if of.File = c.File; c.File == "" {
		if of.DataDir, of.StoreURL, err = p.database(c.Data, c.Store); err != nil {
			return err
		}
	}
	ctx, stop := p.context()
	defer stop()
	sum, err := daemon.Check(ctx, of)
	meter.clear()
	if err != nil {
		return err
	}
	if c.JSON {
		c.line(p, sum)
	} else {
		fmt.Fprintf(p.stdout, "%s in %s, %s\n", counted(sum.Findings, "finding"), counted(sum.Sessions, "session"),
			counted(int(sum.Records), "record"))
	}
	if sum.Findings > 0 {
		return &codedError{code: exitError}
	}
	return nil
}

// copied is what backup and restore write as JSON.
type copied struct {
	File string `json:"file"`
	daemon.CheckSummary
	Bytes   int64  `json:"bytes"`
	TookMS  int64  `json:"took_ms"`
	Kept    string `json:"kept,omitempty"`
	Written string `json:"-"` // what has happened to File
}

// Run copies the database.
func (c *backupCmd) Run(p *process) error {
	of, meter, err := c.copying(p)
	if err != nil {
		return err
	}
	of.File, of.Replace, of.KeepFindings = c.File, c.Force, c.KeepFindings
	ctx, stop := p.context()
	defer stop()
	begun := time.Now()
	out, err := daemon.Backup(ctx, of)
	meter.clear()
	if errors.Is(err, daemon.ErrExists) {
		return fmt.Errorf("%w; --force replaces it", err)
	}
	if err != nil {
		return keepable(err, c.KeepFindings)
	}
	c.say(p, copied{
		File: c.File, CheckSummary: out.CheckSummary, Bytes: out.Bytes, TookMS: time.Since(begun).Milliseconds(),
		Written: "written",
	})
	return nil
}

// Run puts a backup in place.
func (c *restoreCmd) Run(p *process) error {
	of, meter, err := c.copying(p)
	if err != nil {
		return err
	}
	of.File, of.Replace, of.KeepFindings = c.File, c.Force, c.KeepFindings
	of.AllowNetworkFiles = c.AllowNetworkFiles
	ctx, stop := p.context()
	defer stop()
	begun := time.Now()
	out, err := daemon.Restore(ctx, of)
	meter.clear()
	switch {
	case errors.Is(err, daemon.ErrNotEmpty):
		return fmt.Errorf("%w; --force replaces it, and keeps it under another name", err)
	case errors.Is(err, daemon.ErrNetworkFiles):
		return fmt.Errorf("%w (--data), or set --allow-network-files if one daemon of one machine alone uses it", err)
	case err != nil:
		return keepable(err, c.KeepFindings)
	}
	c.say(p, copied{
		File: c.File, CheckSummary: out.CheckSummary, Bytes: out.Bytes, TookMS: time.Since(begun).Milliseconds(),
		Kept: out.Kept, Written: "restored",
	})
	return nil
}

// keepable adds how a copy with findings can be kept, unless that was asked for.
func keepable(err error, asked bool) error {
	if errors.Is(err, daemon.ErrFindings) && !asked {
		return fmt.Errorf("%w; --keep-findings keeps it", err)
	}
	return err
}

// say tells what was written.
func (f *databaseFlags) say(p *process, c copied) {
	if f.JSON {
		f.line(p, c)
		return
	}
	fmt.Fprintf(p.stdout, "%s: %s, %s, %s, %d bytes, %v, %s\n", cli.Clean(c.File), c.Written,
		counted(c.Sessions, "session"), counted(int(c.Records), "record"), c.Bytes,
		time.Duration(cmp.Or(c.TookMS, 1))*time.Millisecond, counted(c.Findings, "finding"))
	if c.Kept != "" {
		fmt.Fprintf(p.stdout, "the database that was there: %s\n", cli.Clean(c.Kept))
	}
}
