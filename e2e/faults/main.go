// Command faults injects faults into a whole Orrery of real processes, as a seed determines,
// and checks that all promises hold: see docs/reliability.md.
//
//	go run ./e2e/faults -seed 17
//	go run ./e2e/faults -seed 1 -count 50
//
// It prints the faults as they happen and one line per seed. The exit code is 1 when a seed
// failed. The directory of a failed seed, with all logs, is kept.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/e2e/faults/plan"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("faults", flag.ContinueOnError)
	fs.SetOutput(stderr)
	seed := fs.Uint64("seed", 1, "the first seed")
	count := fs.Uint64("count", 1, "how many seeds, one after the other")
	dir := fs.String("dir", "", "directory for the runs' files; empty: a temporary one")
	keep := fs.Bool("keep", false, "keep the files of good runs too")
	race := fs.Bool("race", false, "build the services with the race detector")
	show := fs.Bool("plan", false, "print the scenarios only")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *show {
		for s := *seed; s < *seed+*count; s++ {
			describe(stdout, plan.Generate(s, features()))
		}
		return 0
	}
	h, err := newHarness(ctx, *dir, *race, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "faults:", err)
		return 1
	}
	h.keep = *keep
	defer h.close()
	failed := 0
	for s := *seed; s < *seed+*count && ctx.Err() == nil; s++ {
		if !h.seed(ctx, s) {
			failed++
		}
	}
	if failed > 0 || ctx.Err() != nil {
		fmt.Fprintf(stderr, "faults: %d of %d seeds failed\n", failed, *count)
		return 1
	}
	return 0
}

// features returns the features that this machine and the services support.
func features() plan.Features {
	f := plan.Features{Replicas: true, NodeLoss: true, ReplaceStatic: true, Nodes: 1, Disks: disksAllowed()}
	if site.NamespacesAllowed() {
		f.Nodes = 3
	}
	return f
}

// say prints which faults this machine does not support.
func say(out io.Writer, f plan.Features) {
	if f.Nodes == 1 {
		fmt.Fprintln(out, "no network namespaces can be made here: every scenario has one node")
	}
	if !f.Disks {
		fmt.Fprintln(out, "nothing can be mounted here: no disk is filled")
	}
}

// harness runs seeds with programs that are built once.
type harness struct {
	out      io.Writer
	dir      string // of all runs
	temp     bool   // remove dir at the end
	keep     bool
	failures int
	features plan.Features
	programs site.Programs
}

func newHarness(ctx context.Context, dir string, race bool, out io.Writer) (*harness, error) {
	h := &harness{out: out, dir: dir, features: features()}
	say(out, h.features)
	if h.dir == "" {
		h.temp = true
		var err error
		if h.dir, err = os.MkdirTemp("", "orrery-faults-"); err != nil {
			return nil, err
		}
	}
	bin := filepath.Join(h.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	var err error
	h.programs, err = site.Build(ctx, bin, race, append(site.Packages(), "./e2e/cmd/witness")...)
	return h, err
}

// close deletes what is no longer needed.
func (h *harness) close() {
	_ = os.RemoveAll(filepath.Join(h.dir, "bin"))
	if h.temp && h.failures == 0 && !h.keep {
		_ = os.RemoveAll(h.dir)
	}
}

// seed runs one seed and reports whether it passed.
func (h *harness) seed(ctx context.Context, seed uint64) bool {
	s := plan.Generate(seed, h.features)
	describe(h.out, s)
	dir := filepath.Join(h.dir, fmt.Sprint("seed-", seed))
	_ = os.RemoveAll(dir) // files of an earlier run would be mistaken for this run's
	start := time.Now()
	r := &trial{scenario: s, dir: dir, programs: h.programs, out: h.out, start: start}
	broken := r.run(ctx)
	took := time.Since(start).Round(100 * time.Millisecond)
	if len(broken) == 0 {
		fmt.Fprintf(h.out, "SEED %d ok in %v, converged %v after the last fault, %d runs of instances, %d completed moves, %d revisions\n",
			seed, took, r.converged.Round(10*time.Millisecond), r.runs, r.moves, r.revisions)
		if !h.keep {
			_ = os.RemoveAll(dir)
		}
		return true
	}
	h.failures++
	for _, b := range broken {
		fmt.Fprintf(h.out, "BROKEN %s\n", b)
	}
	fmt.Fprintf(h.out, "SEED %d FAILED in %v; files in %s; again with: go run ./e2e/faults -seed %d\n", seed, took, dir, seed)
	return false
}

// describe prints a scenario.
func describe(out io.Writer, s plan.Scenario) {
	fmt.Fprintf(out, "SEED %d: etcd %d, scheduler %d, enforcer %d, apigateway %d, templatesvc %d, nodes %d of %d MiB\n",
		s.Seed, s.Members, s.Schedulers, s.Enforcers, s.Gateways, s.Sources, s.Nodes, s.MemoryMiB)
	for _, g := range s.Groups {
		fmt.Fprintf(out, "  group %s: %d, in the end %d, %d MiB, static %v %v, replaced on loss %v, template %v, crashes after %v\n",
			g.Name, g.Count, g.Final, g.MemoryMiB, g.Static, g.Names, g.ReplaceOnLoss, g.Template, g.Crash)
	}
	for _, name := range s.Services() {
		if clocks := s.Clocks[name]; len(clocks) > 0 {
			fmt.Fprintf(out, "  clock of %s: %v ahead\n", name, clocks)
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(out, "  %6.1f s  %v\n", f.At.Seconds(), f)
	}
}
