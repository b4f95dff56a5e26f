package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
)

type clusterCmd struct {
	configFlag
	storeFlag `embed:""`
	Watch     time.Duration `noenv:"" default:"3s" help:"${cluster_watch}"`
	JSON      bool          `name:"json" noenv:"" help:"Write JSON, one object."`
}

// Help is shown below the flags.
func (*clusterCmd) Help() string {
	return `Reads the database of --store, and asks no server: it works also when none responds. A replica is alive when
a beat of it is seen, draining when it takes no more sessions, silent when no beat was seen within --watch, and dead
when its lock is free besides for 2 s, or after 15 s. It is printed once a beat of each was seen.

Sessions and turns are those that a replica owns now; sessions at rest have no owner. Takeovers are the sessions that
it has taken over from dead ones in its life. What is due for long nobody takes: all replicas are busy, or none lives.

Examples:

  agentd cluster --store postgres://agentd@db/agentd

  agentd cluster --json | jq '.replicas[] | select(.state != "alive")'`
}

// Validate refuses a command without a database.
func (c *clusterCmd) Validate() error {
	if c.Store == "" {
		return fmt.Errorf("--store is missing: replicas share a database of PostgreSQL")
	}
	if c.Watch < 0 {
		return fmt.Errorf("--watch is %v, must not be below 0", c.Watch)
	}
	return nil
}

// Run looks at the replicas.
func (c *clusterCmd) Run(p *process) error {
	ctx, stop := p.context()
	defer stop()
	s, err := daemon.LookAtCluster(ctx, daemon.Secret(c.Store), c.Watch)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(p.stdout).Encode(s)
	}
	out := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "ID\tNAME\tADDRESS\tVERSION\tSTATE\tBEATS\tSESSIONS\tOPEN TURNS\tTAKEOVERS\tLAST TAKEOVER")
	for i := range s.Replicas {
		r := &s.Replicas[i]
		last := "-"
		if r.LastTakeover != nil {
			last = r.LastTakeover.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", r.ID, cli.Clean(r.Name), cli.Clean(r.Address),
			cli.Clean(r.Version), r.State, r.Beat, r.Sessions, r.OpenTurns, r.Takeovers, last)
	}
	if len(s.Replicas) == 0 {
		fmt.Fprintln(out, "(none: one server has the database alone, or none runs)")
	}
	if err := out.Flush(); err != nil {
		return err
	}
	due := "nothing is due"
	if s.Due > 0 {
		due = fmt.Sprintf("%s due and without an owner, the oldest for %v", counted(int(s.Due), "session"),
			s.OldestDue.Round(time.Millisecond))
	}
	if s.Orphans > 0 {
		due += fmt.Sprintf("; %s of dead replicas not taken over yet", counted(int(s.Orphans), "open turn"))
	}
	_, err = fmt.Fprintln(p.stdout, due)
	return err
}
