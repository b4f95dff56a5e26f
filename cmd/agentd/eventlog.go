package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/cli"
)

// databaseFile is the database within the folder of --data.
const databaseFile = "agentd.db"

// eventLogFlags turn on the event log. The last two are the words that other agents have for it.
type eventLogFlags struct {
	Eventlog      bool   `help:"${serve_eventlog}"`
	SessionDB     bool   `name:"session-db" help:"The same as --eventlog."`
	SessionDBPath string `name:"session-db-path" placeholder:"PATH" help:"${serve_session_db_path}"`
}

// on reports whether there is an event log.
func (f *eventLogFlags) on() bool { return f.Eventlog || f.SessionDB || f.SessionDBPath != "" }

// folder is the folder of the database, of what --data and --store say.
func (f *eventLogFlags) folder(data, store string) (string, error) {
	path := f.SessionDBPath
	if path == "" {
		return data, nil
	}
	switch name := filepath.Base(path); {
	case store != "":
		return "", errors.New("--session-db-path names a folder, and --store a database of PostgreSQL: leave out one " +
			"of them; --eventlog is enough")
	case name == databaseFile:
		path = filepath.Dir(path)
	case filepath.Ext(name) == ".db":
		return "", fmt.Errorf("--session-db-path is %s: the database is %s in a folder, so name %s, or its folder",
			path, databaseFile, filepath.Join(filepath.Dir(path), databaseFile))
	}
	if data != "" && filepath.Clean(data) != filepath.Clean(path) {
		return "", fmt.Errorf("--session-db-path is in %s and --data is %s: leave out one of them", path, data)
	}
	return path, nil
}

type eventsCmd struct {
	daemonFlags `embed:""`
	Session     string `noenv:"" placeholder:"ID" help:"Only events of this session."`
	Tree        bool   `noenv:"" help:"With --session: also of the sessions below it."`
	Branch      string `noenv:"" placeholder:"PREFIX" help:"Only events whose branch begins so, as bg. does."`
	Author      string `noenv:"" placeholder:"NAME" help:"Only events of this author: user, an agent, PROVIDER/TOOL."`
	After       int64  `noenv:"" placeholder:"SEQ" help:"Only events behind this number."`
	Limit       int    `noenv:"" default:"50" help:"How many to list at most, from the first one on; 0 is all."`
	Follow      bool   `short:"f" noenv:"" help:"Go on with the events to come, until you interrupt it."`
}

// Help is shown below the flags.
func (*eventsCmd) Help() string {
	return `Who has said something in which session, and when, of a daemon with --eventlog; what was said, agentd
sessions events shows. When the output is no terminal, it is JSON.

Examples:

  agentd events --after 1200 --limit 0

  agentd events -f --session SESSION --tree

  agentd events --branch bg. --json`
}

// loggedLine is an event as JSON.
type loggedLine struct {
	Seq      int64           `json:"seq"`
	Time     time.Time       `json:"timestamp"`
	App      string          `json:"app_name"`
	User     string          `json:"user_id"`
	Session  string          `json:"session_id"`
	ID       string          `json:"event_id"`
	Branch   string          `json:"branch"`
	Author   string          `json:"author"`
	Turn     string          `json:"invocation_id"`
	Metadata json.RawMessage `json:"metadata"`
}

// Run lists or follows the event log.
func (c *eventsCmd) Run(p *process) error {
	if c.Tree && c.Session == "" {
		return usage("--tree: of which session? name it with --session")
	}
	return c.talk(p, func(t talk) error {
		filter := client.LogFilter{SessionID: c.Session, Tree: c.Tree, BranchPrefix: c.Branch, Author: c.Author}
		all := t.conn.EventLog
		if c.Follow {
			all = t.conn.WatchEventLog
		}
		n := 0
		for e, err := range all(t.ctx, c.After, filter) {
			if err != nil {
				if c.Follow && t.ctx.Err() != nil {
					return context.Cause(t.ctx)
				}
				return err
			}
			if err := printLogged(p.stdout, e, c.json(p)); err != nil {
				return err
			}
			if n++; !c.Follow && c.Limit > 0 && n == c.Limit {
				return nil
			}
		}
		return nil
	})
}

// printLogged prints one event.
func printLogged(to io.Writer, e *client.LoggedEvent, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(to).Encode(loggedLine{
			Seq: e.Seq, Time: e.Time, App: e.App, User: e.User, Session: e.SessionID, ID: e.ID, Branch: e.Branch,
			Author: e.Author, Turn: e.TurnID, Metadata: e.Metadata,
		})
	}
	_, err := fmt.Fprintf(to, "%d  %s  %s  %s  %s\n", e.Seq, e.Time.Format(time.RFC3339), cli.Clean(e.SessionID),
		cli.Clean(e.Branch), cli.Clean(e.Author))
	return err
}
