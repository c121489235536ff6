package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

const (
	coldStarts   = 9
	idleSettle   = 20 * time.Second
	idleWindow   = 20 * time.Second
	overheadFew  = 100
	overheadMany = 600
)

// measureIdle measures the cost of an idle Orrery: the start, memory and CPU time of an
// empty standalone, and the memory per instance.
func measureIdle(ctx context.Context, b *bench) error {
	var starts []float64
	for range coldStarts {
		s, err := b.startStandalone(ctx)
		if err != nil {
			return err
		}
		starts = append(starts, s.took.Seconds())
		s.stop()
	}
	slices.Sort(starts)
	b.report("cold_start_s", starts[len(starts)/2], "s", -1)

	s, err := b.startStandalone(ctx, "-memory", "1000000", "-cpu", "1000000")
	if err != nil {
		return err
	}
	defer s.stop()
	rss, cpu, err := s.settle(ctx)
	if err != nil {
		return err
	}
	b.report("idle_rss_mib", rss, "MiB", -1)
	b.report("idle_cpu_pct", cpu, "%", -1)

	spec := map[string]any{"name": "idle", "command": "exec sleep 100000", "memoryMb": 16, "maxInstances": 0, "portRangeStart": 20000, "portRangeEnd": 29999}
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return err
	}
	if err := s.scale(ctx, "idle", overheadFew); err != nil {
		return err
	}
	few, err := s.inUse(ctx)
	if err != nil {
		return err
	}
	if err := s.scale(ctx, "idle", overheadMany); err != nil {
		return err
	}
	many, err := s.inUse(ctx)
	if err != nil {
		return err
	}
	_, cpu, err = s.settle(ctx)
	if err != nil {
		return err
	}
	b.report("instance_overhead_kib", (many-few)*1024/(overheadMany-overheadFew), "KiB", -1)
	b.report("rss_600_mib", many, "MiB", -1)
	b.report("steady_600_cpu_pct", cpu, "%", -1)
	return nil
}

// settle waits until start-up garbage is gone, and then measures memory and the share of
// one core used over a window.
func (s *server) settle(ctx context.Context) (rssMiB, cpuPct float64, err error) {
	return settle(ctx, s.cmd.Process.Pid)
}

func settle(ctx context.Context, pid int) (rssMiB, cpuPct float64, err error) {
	if !pause.For(ctx, idleSettle) {
		return 0, 0, ctx.Err()
	}
	before, err := cpuOf(pid)
	if err != nil {
		return 0, 0, err
	}
	if !pause.For(ctx, idleWindow) {
		return 0, 0, ctx.Err()
	}
	after, err := cpuOf(pid)
	if err != nil {
		return 0, 0, err
	}
	rssMiB, err = memoryMiB(pid, "VmRSS:")
	return rssMiB, 100 * float64(after-before) / float64(idleWindow), err
}

// inUse returns the resident memory right after a garbage collection.
func (s *server) inUse(ctx context.Context) (float64, error) {
	if err := s.collect(ctx); err != nil {
		return 0, err
	}
	return s.rssMiB()
}

// scale sets a group to n instances and waits until they run.
func (s *server) scale(ctx context.Context, group string, n int) error {
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups/"+group+"/scale", map[string]int{"targetInstances": n}, nil); err != nil {
		return err
	}
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		var page struct{ Total int }
		if err := s.call(ctx, http.MethodGet, "/api/v1/services?pageSize=1&state=RUNNING&group="+group, nil, &page); err != nil {
			return err
		}
		if page.Total == n {
			return nil
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("group %s did not reach %d instances", group, n)
}
