// Command clustersim simulates many replicas of agentd over one PostgreSQL: what the database is busy with, what an
// append takes, and how long sessions wait whose owner has died. It runs on no database and no network: the times of
// the flags are what was measured, see docs/cluster.md.
//
// It knows how replicas use the database, and nothing of agentd's code.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	s := Setup{
		Replicas: 100, AtRest: 1_000_000, Rate: 500, Appends: 8, Turn: 20 * time.Second, For: 60 * time.Second,
		Cores: 16, Flush: time.Millisecond, RoundTrip: 300 * time.Microsecond,
		Writers: 2, Group: 128, Claimers: 8, Beat: time.Second, Look: 500 * time.Millisecond, LockTTL: 2 * time.Second,
		Costs: Costs{
			Transaction: 60 * time.Microsecond, Append: 45 * time.Microsecond, Claim: 100 * time.Microsecond,
			Beat: 200 * time.Microsecond, BeatOf: 1300 * time.Nanosecond,
			Look: 60 * time.Microsecond, LookOf: 800 * time.Nanosecond, Read: 500 * time.Microsecond,
		},
		Seed: 1,
	}
	flag.IntVar(&s.Replicas, "replicas", s.Replicas, "replicas")
	flag.IntVar(&s.AtRest, "sessions", s.AtRest, "sessions at rest")
	flag.Float64Var(&s.Rate, "rate", s.Rate, "turns that begin in a second, of all replicas")
	flag.IntVar(&s.Appends, "appends", s.Appends, "appends of a turn")
	flag.DurationVar(&s.Turn, "turn", s.Turn, "how long a turn takes")
	flag.DurationVar(&s.For, "for", s.For, "how long is simulated")
	flag.IntVar(&s.Killed, "killed", s.Killed, "replicas that die at a third of that time")
	flag.IntVar(&s.Cores, "cores", s.Cores, "cores of the database's machine")
	flag.DurationVar(&s.Flush, "flush", s.Flush, "an fsync of its disk, or the wait for its standby")
	flag.DurationVar(&s.RoundTrip, "rtt", s.RoundTrip, "from a replica to the database and back")
	flag.Uint64Var(&s.Seed, "seed", s.Seed, "seed of the chances")
	table := flag.Bool("table", false, "print the tables of docs/cluster.md")
	flag.Parse()
	if err := s.check(); err != nil {
		fmt.Fprintln(os.Stderr, "clustersim:", err)
		os.Exit(2)
	}
	if *table {
		tables(os.Stdout, s)
		return
	}
	header(os.Stdout)
	row(os.Stdout, s)
}

func (s *Setup) check() error {
	switch {
	case s.Replicas < 1 || s.Killed < 0 || s.Killed >= s.Replicas:
		return fmt.Errorf("%d replicas, of which %d die: want at least one that lives", s.Replicas, s.Killed)
	case s.Rate <= 0 || s.Appends < 1 || s.Turn <= 0 || s.For <= 0 || s.Cores < 1:
		return fmt.Errorf("-rate, -appends, -turn, -for and -cores must be above 0")
	case s.Flush < 0 || s.RoundTrip < 0 || s.AtRest < 0:
		return fmt.Errorf("-flush, -rtt and -sessions must not be below 0")
	}
	return nil
}

// tables prints what the documentation has.
func tables(w io.Writer, s Setup) {
	fmt.Fprintln(w, "Load, at", s.Replicas, "replicas:")
	header(w)
	for _, rate := range []float64{100, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 24_000} {
		at := s
		at.Rate = rate
		row(w, at)
	}
	fmt.Fprintln(w, "\nReplicas, at", s.Rate, "turns a second:")
	header(w)
	for _, n := range []int{3, 10, 30, 100, 300, 1_000} {
		at := s
		at.Replicas = n
		row(w, at)
	}
	fmt.Fprintln(w, "\nDeaths, of", s.Replicas, "replicas at 2,000 turns a second:")
	header(w)
	for _, n := range []int{1, 10, 50, 90} {
		at := s
		at.Rate, at.Killed = 2_000, n
		row(w, at)
	}
}

func header(w io.Writer) {
	columns := []string{
		"replicas", "turns/s", "appends/s", "busy: appends", "claims", "beats", "looks", "in all", "append p50", "p99",
		"open turns", "died", "taken over", "p50", "last",
	}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
}

func row(w io.Writer, s Setup) {
	r := Simulate(s)
	died, p50, last := "–", "–", "–"
	if s.Killed > 0 {
		died, p50, last = fmt.Sprint(s.Killed), short(r.TakenOver.at(0.5)), short(r.TakenOver.at(1))
	}
	share := func(k kind) string { return fmt.Sprintf("%.1f %%", 100*r.Busy[k]) }
	fmt.Fprintf(w, "| %d | %.0f | %.0f | %s | %s | %s | %s | %.1f %% | %s | %s | %d | %s | %d | %s | %s |\n",
		s.Replicas, s.Rate, r.AppendRate, share(appends), share(claims), share(beats), share(looks), 100*r.busy(),
		short(r.Appends.at(0.5)), short(r.Appends.at(0.99)), r.Open, died, len(r.TakenOver), p50, last)
}

// short is a time to two or three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
}
