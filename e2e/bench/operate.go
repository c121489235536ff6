package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// thousand is the number of real processes that are started on one node, idle there,
	// and stopped.
	thousand = 1000
	// idler is the command of each process.
	idler = "exec sleep 100000"
	// farewells is how many servers record their end after a stop request.
	farewells = 40
)

// measureOperate measures the cost of many servers: from one request to all of them online,
// while they are idle, and from one request to all of them gone. It also measures the time
// from a server's end after a stop request to its visible state STOPPED.
func measureOperate(ctx context.Context, b *bench) error {
	limit, err := forkLimit(b.dir)
	if err != nil {
		return err
	}
	s, err := b.startStandalone(ctx, "-memory", "1000000", "-cpu", "1000000")
	if err != nil {
		return err
	}
	defer s.stop()
	spec := map[string]any{
		"name": "idle", "command": idler, "memoryMb": 16, "maxInstances": 0, "shutdownGraceSeconds": 0,
		"portRangeStart": 20000, "portRangeEnd": 29999,
	}
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return err
	}
	before, err := s.cpu()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.scale(ctx, "idle", thousand); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := s.cpu()
	if err != nil {
		return err
	}
	b.report("start_1000_per_s", thousand/took.Seconds(), "1/s", limit.perSecond)
	b.report("start_cpu_ms", milliseconds(after-before)/thousand, "ms", limit.cpuMs)
	_, cpu, err := s.settle(ctx)
	if err != nil {
		return err
	}
	b.report("steady_cpu_pct", cpu, "%", 0)
	began = time.Now()
	if err := s.stopAll(ctx, "idle"); err != nil {
		return err
	}
	b.report("stop_1000_s", time.Since(began).Seconds(), "s", limit.stopSeconds)
	return s.measureFarewells(ctx, b)
}

// stopAll stops all instances of a group and waits until none is left.
func (s *server) stopAll(ctx context.Context, group string) error {
	if err := s.call(ctx, http.MethodDelete, "/api/v1/groups/"+group, nil, nil); err != nil {
		return err
	}
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		left := 0
		for _, state := range []string{"RUNNING", "STOPPING"} {
			var page struct{ Total int }
			if err := s.call(ctx, http.MethodGet, "/api/v1/services?pageSize=1&state="+state+"&group="+group, nil, &page); err != nil {
				return err
			}
			left += page.Total
		}
		if left == 0 {
			return nil
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("group %s did not end", group)
}

// measureFarewells stops servers that record when they end.
func (s *server) measureFarewells(ctx context.Context, b *bench) error {
	events, err := s.events(ctx)
	if err != nil {
		return err
	}
	defer events.close()
	file := filepath.Join(b.dir, "farewell")
	spec := map[string]any{
		"name": "farewell", "command": `read -r stop; echo "$EPOCHREALTIME" > ` + file, "memoryMb": 16,
		"maxInstances": 0, "portRangeStart": 20000, "portRangeEnd": 29999,
	}
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return err
	}
	var after []time.Duration
	for n := range farewells + warmup {
		if err := s.call(ctx, http.MethodPost, "/api/v1/groups/farewell/start", nil, nil); err != nil {
			return err
		}
		online, err := events.await("farewell", "RUNNING", "")
		if err != nil {
			return err
		}
		if err := s.call(ctx, http.MethodPost, "/api/v1/services/"+online.UID+"/stop", nil, nil); err != nil {
			return err
		}
		stopped, err := events.await("farewell", "STOPPED", online.UID)
		if err != nil {
			return err
		}
		said, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		at, err := strconv.ParseFloat(strings.TrimSpace(string(said)), 64)
		if err != nil {
			return err
		}
		if n >= warmup {
			after = append(after, stopped.at.Sub(time.UnixMicro(int64(at*1e6))))
		}
	}
	b.report("stop_seen_p50_ms", quantile(after, 0.5), "ms", -1)
	b.report("stop_seen_p99_ms", quantile(after, 0.99), "ms", -1)
	return nil
}

// forks is the machine's own cost of the same processes. Each has its own directory and
// log, and nothing monitors it.
type forks struct {
	// perSecond is the start rate, and cpuMs the starter's CPU time per process.
	perSecond, cpuMs float64
	// stopSeconds is the time to kill and reap all of them.
	stopSeconds float64
}

// forkLimit measures the machine's own cost of the processes.
func forkLimit(dir string) (f forks, err error) {
	var all []*exec.Cmd
	defer func() { kill(all) }()
	used, err := cpuOf(os.Getpid())
	if err != nil {
		return f, err
	}
	began := time.Now()
	if all, err = fork(dir); err != nil {
		return f, err
	}
	took := time.Since(began)
	now, err := cpuOf(os.Getpid())
	f.perSecond, f.cpuMs = float64(len(all))/took.Seconds(), milliseconds(now-used)/float64(len(all))
	began = time.Now()
	kill(all)
	f.stopSeconds = time.Since(began).Seconds()
	all = nil
	return f, err
}

// fork starts all of them, as many concurrently as there are CPUs.
func fork(dir string) (all []*exec.Cmd, failed error) {
	var mu sync.Mutex
	var starters sync.WaitGroup
	for range runtime.NumCPU() {
		starters.Go(func() {
			for range thousand / runtime.NumCPU() {
				c, err := startLogged(dir)
				mu.Lock()
				if err != nil {
					failed = err
				} else {
					all = append(all, c)
				}
				mu.Unlock()
			}
		})
	}
	starters.Wait()
	return all, failed
}

// kill kills processes and awaits their ends.
func kill(all []*exec.Cmd) {
	for _, c := range all {
		_ = c.Process.Kill()
	}
	for _, c := range all {
		_ = c.Wait()
	}
}

// startLogged starts one process.
func startLogged(dir string) (*exec.Cmd, error) {
	dir, err := os.MkdirTemp(dir, "fork-")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := exec.Command("/bin/sh", "-c", idler)
	c.Dir, c.Stdout, c.Stderr = dir, log, log
	return c, c.Start()
}
