package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	placeNodes     = 5000
	placeInstances = 100_000
	placeReplicas  = 4
	placeGroups    = 8 // per replica
)

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "  %s %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// measurePlaceMemory runs the benchmarks of the internal package place, which cannot be
// imported here, and reports their figures.
func measurePlaceMemory(ctx context.Context, b *bench) error {
	progress("decisions and explanations in memory")
	figures, err := goBench(ctx, "./scheduler/internal/place", "^BenchmarkFleet$")
	if err != nil {
		return err
	}
	for _, f := range figures {
		b.report(f.id, f.value, f.unit, -1)
	}
	return nil
}

type figure struct {
	id    string
	value float64
	unit  string
}

// goBench runs Go benchmarks once and returns the figures with units of the form
// "<id>:<unit>".
func goBench(ctx context.Context, pkg, pattern string) ([]figure, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-benchtime", "1x", pkg)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("benchmarks of %s: %w\n%s", pkg, err, out.String())
	}
	var figures []figure
	for line := range strings.Lines(out.String()) {
		fields := strings.Fields(line)
		for i := 1; i < len(fields); i++ {
			id, unit, ok := strings.Cut(fields[i], ":")
			if v, err := strconv.ParseFloat(fields[i-1], 64); ok && err == nil {
				figures = append(figures, figure{id, v, unit})
			}
		}
	}
	if len(figures) == 0 {
		return nil, fmt.Errorf("benchmarks of %s reported nothing:\n%s", pkg, out.String())
	}
	return figures, nil
}

// measurePlaceEtcd measures one replica with one group through etcd, and repeats its
// transactions without a scheduler.
func measurePlaceEtcd(ctx context.Context, b *bench) error {
	size := fleetSize{nodes: placeNodes, instances: placeInstances, groups: []fleet.GroupName{"arena"}}
	run, err := b.placeRun(ctx, size, cast{schedulers: 1})
	if err != nil {
		return err
	}
	raw, err := b.replay(ctx, size, run)
	if err != nil {
		return err
	}
	b.report("place_etcd_per_s", run.perSecond(), "1/s", raw.perSecond())
	b.report("place_etcd_share", 100*run.perSecond()/raw.perSecond(), "%", 100)
	b.report("place_etcd_cpu_us", run.cpuEach(), "µs", raw.cpuEach())
	b.report("place_txn_placements", float64(run.placed)/float64(len(run.txns)), "1/transaction", -1)
	return nil
}

// measurePlaceShared compares four replicas with eight groups each to one replica with all
// groups. On one machine, all four views use the same CPUs. So it also measures one replica
// while three additional views follow.
func measurePlaceShared(ctx context.Context, b *bench) error {
	groups, err := b.evenGroups(ctx)
	if err != nil {
		return err
	}
	size := fleetSize{nodes: placeNodes, instances: placeInstances, groups: groups}
	alone, err := b.placeRun(ctx, size, cast{schedulers: 1})
	if err != nil {
		return err
	}
	one, err := b.placeRun(ctx, size, cast{schedulers: 1, followers: placeReplicas - 1})
	if err != nil {
		return err
	}
	four, err := b.placeRun(ctx, size, cast{schedulers: placeReplicas})
	if err != nil {
		return err
	}
	b.report("place_one_replica_per_s", alone.perSecond(), "1/s", -1)
	b.report("place_one_of_four_per_s", one.perSecond(), "1/s", -1)
	b.report("place_four_replicas_per_s", four.perSecond(), "1/s", one.perSecond())
	b.report("place_four_replicas_lost", four.lost/float64(len(four.txns)), "parts/transaction", -1)
	b.report("place_four_replicas_overcommitted", float64(four.faults), fmt.Sprintf("of %d", four.placed), 0)
	return nil
}

// scalingSizes are the fleets in the scaling table.
var scalingSizes = []struct{ nodes, instances int }{
	{10, 1000}, {100, 1000}, {100, 10_000}, {1000, 10_000}, {1000, 100_000}, {10_000, 100_000},
}

// measurePlaceScaling prints the cost of a placement in fleets of many sizes.
func measurePlaceScaling(ctx context.Context, b *bench) error {
	type row struct {
		nodes, instances int
		run              *placeRun
	}
	var rows []row
	for _, s := range scalingSizes {
		run, err := b.placeRun(ctx, fleetSize{nodes: s.nodes, instances: s.instances, groups: []fleet.GroupName{"arena"}}, cast{schedulers: 1})
		if err != nil {
			return err
		}
		rows = append(rows, row{s.nodes, s.instances, run})
	}
	fmt.Fprintf(b.out, "\n%8s %10s %16s %16s\n", "nodes", "instances", "placements/s", "µs of CPU each")
	for _, r := range rows {
		fmt.Fprintf(b.out, "%8d %10d %16s %16.1f\n", r.nodes, r.instances, strconv.Itoa(int(r.run.perSecond())), r.run.cpuEach())
	}
	return nil
}
