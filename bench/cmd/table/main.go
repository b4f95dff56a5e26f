// Command table measures agentd beside the least that a server can do and beside ADK's own server, in one run, and
// prints what each takes. Every answer is checked: a wrong one ends the run. docs/performance.md says what is
// measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/apzuk3/agentd/bench/internal/peer"
	"github.com/apzuk3/agentd/bench/internal/proc"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	bins, agentd, base string
	dir                string
	core               string
	short              bool
	repeats            int
	profiles           string
	seconds            int
	wire               providertest.Wire
	api                string
	model              *proc.Process
}

func run(ctx context.Context, args []string, out io.Writer) error {
	b := &bench{}
	var only, servers, wire string
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	flags.StringVar(&b.bins, "bins", ".", "folder of fakemodel, floor and adkpeer")
	flags.StringVar(&b.agentd, "agentd", "agentd", "binary of agentd")
	flags.StringVar(&b.base, "base", "", "binary of another agentd, to which it is compared in place of the others")
	flags.StringVar(&b.dir, "dir", "", "folder for databases; default: that for temporary files")
	flags.StringVar(&b.core, "core", "", "core of each server, such as 0; give this command another with taskset")
	flags.BoolVar(&b.short, "short", false, "run little of each, once, and all wires, to check the answers alone")
	flags.IntVar(&b.repeats, "repeats", 3, "how often each is measured; the median counts")
	flags.StringVar(&only, "only", "", "workloads, separated by commas: "+strings.Join(names(), ", "))
	flags.StringVar(&servers, "servers", "", "servers, separated by commas, such as floor,disk; default: all")
	flags.StringVar(&wire, "wire", string(providertest.Gemini), "wire of agentd's model; the others have Gemini's")
	flags.StringVar(&b.api, "api", "run", "how agentd is asked: run (one stream a turn), or sessions (SessionService)")
	flags.StringVar(&b.profiles, "profiles", "", "folder for CPU profiles of agentd, one a workload, and no table")
	flags.IntVar(&b.seconds, "seconds", 10, "how long a profile takes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b.wire = providertest.Wire(wire)
	if peer.Models[b.wire] == "" {
		return fmt.Errorf("-wire %s: there are %v", wire, providertest.Wires)
	}
	if b.api != "run" && b.api != "sessions" {
		return fmt.Errorf("-api %s: there are run and sessions", b.api)
	}
	if b.short {
		b.repeats = 1
	}
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	columns, err := b.columns(servers)
	if err != nil {
		return err
	}
	if b.model, err = proc.Start(ctx, "", nil, b.bin("fakemodel")); err != nil {
		return err
	}
	return errors.Join(b.all(ctx, chosen, columns, out), b.model.Stop())
}

// all measures everything, and prints it.
func (b *bench) all(ctx context.Context, chosen []workload, columns []kind, out io.Writer) error {
	if b.profiles != "" {
		return b.profile(ctx, chosen, columns)
	}
	r := results{}
	for _, w := range chosen {
		repeats := b.repeats
		if w.once {
			repeats = 1
		}
		for range repeats {
			// One after another, so that what changes on the machine changes for all.
			for _, k := range columns {
				if err := b.measure(ctx, w, k, b.wire, r); err != nil {
					return fmt.Errorf("%s, %s, %s: %w", w.name, k, b.wire, err)
				}
			}
		}
		b.progress(w, columns, r)
	}
	if b.short {
		return b.wires(ctx, chosen)
	}
	b.print(out, chosen, columns, r)
	return nil
}

// progress says what has been measured so far. The times of the short form say nothing.
func (b *bench) progress(w workload, columns []kind, r results) {
	if b.short {
		fmt.Fprintf(os.Stderr, "%s: all answers are right\n", w.name)
		return
	}
	for _, row := range w.rows {
		for _, k := range columns {
			fmt.Fprintf(os.Stderr, "%s, %s: %.4g\n", row.title, k, r[row.title][k])
		}
	}
}

// wires runs agentd with the other wires, and by SessionService.
func (b *bench) wires(ctx context.Context, chosen []workload) error {
	chosen = slices.DeleteFunc(slices.Clone(chosen), func(w workload) bool {
		return !slices.Contains([]string{"session", "rounds", "burst", "parallel", "long-turns"}, w.name)
	})
	check := func(wire providertest.Wire) error {
		for _, w := range chosen {
			if err := b.measure(ctx, w, memory, wire, results{}); err != nil {
				return fmt.Errorf("%s, %s, %s, -api %s: %w", w.name, memory, wire, b.api, err)
			}
		}
		return nil
	}
	for _, wire := range providertest.Wires {
		if wire == b.wire {
			continue
		}
		if err := check(wire); err != nil {
			return err
		}
	}
	b.api = map[string]string{"run": "sessions", "sessions": "run"}[b.api]
	return check(b.wire)
}

// measure runs a workload on a server that it starts.
func (b *bench) measure(ctx context.Context, w workload, k kind, wire providertest.Wire, r results) error {
	if slices.Contains(w.without, k) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.timeout(), fmt.Errorf("it takes more than %s", b.timeout()))
	defer cancel()
	t, err := b.start(ctx, k, wire)
	if err != nil {
		return errors.Join(err, t.stop())
	}
	// What a server before it has left behind does not count.
	if _, err := b.counts(ctx, http.MethodPost); err != nil {
		return errors.Join(err, t.stop())
	}
	values, err := w.run(ctx, b, t)
	if err := errors.Join(err, t.stop()); err != nil {
		return err
	}
	for i, row := range w.rows {
		r.add(row.title, k, values[i])
	}
	return nil
}

// timeout is how long one measurement of one server may take.
func (b *bench) timeout() time.Duration {
	if b.short {
		return time.Minute
	}
	return 10 * time.Minute
}

// choose returns the workloads of a list of names.
func choose(list string) ([]workload, error) {
	all := workloads()
	if list == "" {
		return all, nil
	}
	var chosen []workload
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only: there is no workload %q; there are %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func names() []string {
	var out []string
	for _, w := range workloads() {
		out = append(out, w.name)
	}
	return out
}

// columns returns the servers, of which each name of the list begins with a part.
func (b *bench) columns(list string) ([]kind, error) {
	all := []kind{floor, adk, disk, memory}
	if b.base != "" {
		all = []kind{baseDisk, disk, baseMemory, memory}
	}
	if list == "" {
		return all, nil
	}
	var chosen []kind
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(k kind) bool { return k.flag() == name })
		if i < 0 {
			var known []string
			for _, k := range all {
				known = append(known, k.flag())
			}
			return nil, fmt.Errorf("-servers: there is no %q; there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// flag is the name of a server in a flag: floor, adk, disk, memory, base-disk or base-memory.
func (k kind) flag() string {
	words := strings.Fields(strings.ToLower(strings.ReplaceAll(string(k), ",", "")))
	switch words[0] {
	case "base":
		return strings.Join(words, "-")
	case "agentd":
		return words[1]
	}
	return words[0]
}
