package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const placeSecret = "only-for-this-benchmark-0123456789"

// measurePlaceProcess measures the memory of a scheduler in a separate process.
func measurePlaceProcess(ctx context.Context, b *bench) error {
	ctx, cancel := context.WithTimeout(ctx, placePatience)
	defer cancel()
	progress("memory of a scheduler as a process, %d nodes, %d instances", placeNodes, placeInstances)
	e, err := b.startPlaceEtcd()
	if err != nil {
		return err
	}
	defer e.stop()
	c := e.store()
	if _, err := c.Join(ctx, time.Now()); err != nil {
		return err
	}
	size := fleetSize{nodes: placeNodes, instances: placeInstances, groups: []fleet.GroupName{"arena"}}
	if err := size.seed(ctx, c); err != nil {
		return err
	}
	pid, ended, stop, err := b.startScheduler(ctx, e)
	if err != nil {
		return err
	}
	defer stop()
	began, err := e.claimed(ended)
	if err != nil {
		return cmp.Or(context.Cause(ended), err)
	}
	if err := e.placed(ended, placeInstances); err != nil {
		return err
	}
	b.report("place_process_per_s", placeInstances/time.Since(began).Seconds(), "1/s", -1)
	rss, err := memoryMiB(pid, "VmHWM:")
	if err != nil {
		return err
	}
	b.report("place_rss_mib", rss, "MiB", 1536)
	return nil
}

// startScheduler runs the scheduler's program against an etcd until stop is called. The
// context ended ends when the program does.
func (b *bench) startScheduler(ctx context.Context, e *placeEtcd) (pid int, ended context.Context, stop func(), err error) {
	program, err := b.build(ctx, "./scheduler/cmd/scheduler")
	if err != nil {
		return 0, nil, nil, err
	}
	secret := filepath.Join(b.dir, "place-secret")
	if err := os.WriteFile(secret, []byte(placeSecret), 0o600); err != nil {
		return 0, nil, nil, err
	}
	cmd := exec.Command(program, "--etcd-endpoints", "http://"+e.Clients[0].Addr().String(),
		"--etcd-max-ops", strconv.Itoa(placeMaxOps), "--cluster-secret-file", secret, "--log-level", "warn")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, nil, nil, err
	}
	ended, over := context.WithCancelCause(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		over(fmt.Errorf("the scheduler's program ended: %w", cmd.Wait()))
	}()
	return cmd.Process.Pid, ended, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-gone
	}, nil
}

// placed waits until etcd holds a number of placements.
func (e *placeEtcd) placed(ctx context.Context, want int64) error {
	for {
		resp, err := e.raw.Get(ctx, keys.Root+"placements/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case resp.Count >= want:
			return nil
		}
		if !pause.For(ctx, 250*time.Millisecond) {
			return fmt.Errorf("%d of %d were placed: %w", resp.Count, want, context.Cause(ctx))
		}
	}
}
