package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/orreryhq/orrery/e2e/adopt"
	"github.com/orreryhq/orrery/e2e/cluster/site"
)

const (
	adoptInstances = 50
	adoptRate      = 50
	adoptKills     = 20
	adoptSeed      = 1
)

// measureAdopt kills the agent under servers that print numbered lines. It counts the
// console lines that readers missed and measures how long the agent was away.
func measureAdopt(ctx context.Context, b *bench) error {
	bin, dir := filepath.Join(b.dir, "adopt-bin"), filepath.Join(b.dir, "adopt")
	for _, d := range []string{bin, dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	programs, err := site.Build(ctx, bin, false, adopt.Packages()...)
	if err != nil {
		return err
	}
	r, err := adopt.Run(ctx, programs, adopt.Options{
		Dir: dir, Instances: adoptInstances, Rate: adoptRate, Kills: adoptKills, Seed: adoptSeed,
		Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	})
	if err != nil {
		return err
	}
	b.report("adopt_lines", float64(r.Lines), "lines", -1)
	b.report("adopt_exits", float64(r.Exits), "exits", 0)
	b.report("adopt_gaps", float64(r.Gaps), "lines", 0)
	b.report("adopt_duplicates", float64(r.Duplicates), "lines", 0)
	b.report("adopt_seconds_p50", quantile(r.Back, 0.5)/1000, "s", -1)
	return nil
}
