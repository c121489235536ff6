package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// cliRuns is how often a command is measured.
	cliRuns = 21
	// cliLines is how many lines are read while the CPU time of orrery logs is measured, and cliLineRate
	// how many of them the server prints in a second. A line has ten bytes, because a console shows at most 1 MiB/s live.
	cliLines, cliLineRate = 500_000, 50_000
)

// cliPrinter prints cliLineRate lines a second: a batch every hundredth of a second, at fixed times, so that a late
// batch does not lower the rate.
const cliPrinter = `exec python3 -uc '
import sys, time
batch, at = "\n".join("%09d" % n for n in range(500)) + "\n", time.monotonic()
while True:
    sys.stdout.write(batch); sys.stdout.flush()
    at += 0.01
    time.sleep(max(0, at - time.monotonic()))'`

// cliBench is the program orrery with the settings of a user who has logged in.
type cliBench struct {
	*bench
	program string
	env     []string
}

// measureCLI measures the command line: with a gateway of ten thousand instances, without a server, and
// beside a server that prints.
func measureCLI(ctx context.Context, b *bench) error {
	c := &cliBench{bench: b, program: filepath.Join(b.dir, "orrery")}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", c.program, "./cli/cmd/orrery")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building orrery (run this from the repository's root): %w", err)
	}
	info, err := os.Stat(c.program)
	if err != nil {
		return err
	}
	b.report("cli_binary_mib", float64(info.Size())/(1<<20), "MiB", -1)
	if err := c.measureHelp(ctx); err != nil {
		return err
	}
	if err := c.measureLists(ctx); err != nil {
		return err
	}
	if err := c.measureLogs(ctx); err != nil {
		return err
	}
	return c.measureTop(ctx)
}

// run runs the program and returns its output and how long it took.
func (c *cliBench) run(ctx context.Context, args ...string) (out []byte, took time.Duration, err error) {
	began := time.Now()
	out, err = c.output(ctx, c.program, args...)
	return out, time.Since(began), err
}

func (c *cliBench) output(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), c.env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("orrery %v: %w: %s", args, err, stderr.Bytes())
	}
	return out, nil
}

// median runs the program several times and returns the median of the times, in milliseconds.
func (c *cliBench) median(ctx context.Context, args ...string) (float64, error) {
	var times []time.Duration
	for range cliRuns {
		_, took, err := c.run(ctx, args...)
		if err != nil {
			return 0, err
		}
		times = append(times, took)
	}
	return quantile(times, 0.5), nil
}

// childMemory runs its arguments and prints the most memory they held, in KiB. A process of its own must do this:
// Linux counts the memory of the parent until the program is executed, and this one is large.
const childMemory = `import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)`

// memoryMiB returns the most memory that the program held.
func (c *cliBench) memoryMiB(ctx context.Context, args ...string) (float64, error) {
	out, err := c.output(ctx, "python3", append([]string{"-c", childMemory, c.program}, args...)...)
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return kib / 1024, err
}

func (c *cliBench) measureHelp(ctx context.Context) error {
	ms, err := c.median(ctx, "get", "--help")
	if err != nil {
		return err
	}
	c.report("cli_help_ms", ms, "ms", 30)
	return nil
}

// measureLists lists and completes ten thousand instances. The limit is a client that only reads the pages.
func (c *cliBench) measureLists(ctx context.Context) error {
	etcd, err := c.startEtcd("cli-etcd")
	if err != nil {
		return err
	}
	defer etcd.Close()
	agent, stop, err := startStandIn(ctx)
	if err != nil {
		return err
	}
	defer stop()
	endpoint := "http://" + etcd.Clients[0].Addr().String()
	if err := seedAt(ctx, endpoint, agent); err != nil {
		return err
	}
	all, err := c.newGateways(ctx, "cli", endpoint)
	if err != nil {
		return err
	}
	g, err := all.start(ctx, "measured")
	if err != nil {
		return err
	}
	defer g.Kill()
	token, err := all.login(ctx, g)
	if err != nil {
		return err
	}
	c.env = []string{"ORRERY_SERVER=" + g.url, "ORRERY_TOKEN=" + token}
	out, _, err := c.run(ctx, "get", "instances", "--no-headers")
	if err != nil {
		return err
	}
	if lines := countLines(out); lines != apiInstances {
		return fmt.Errorf("orrery get instances printed %d lines instead of %d", lines, apiInstances)
	}
	ms, err := c.median(ctx, "get", "instances")
	if err != nil {
		return err
	}
	mib, err := c.memoryMiB(ctx, "get", "instances")
	if err != nil {
		return err
	}
	limit, err := pagesMS(ctx, g.url, token)
	if err != nil {
		return err
	}
	c.report("cli_get10k_ms", ms, "ms", limit)
	c.report("cli_get10k_mib", mib, "MiB", 60)
	ms, err = c.median(ctx, "__complete", "describe", "instance", "api-07-99")
	c.report("cli_complete_ms", ms, "ms", 100)
	return err
}

func countLines(text []byte) int {
	n := 0
	for _, b := range text {
		if b == '\n' {
			n++
		}
	}
	return n
}

// pagesMS returns the median time to read all pages of the instances, without decoding them.
func pagesMS(ctx context.Context, api, token string) (float64, error) {
	client := &http.Client{}
	defer client.CloseIdleConnections()
	var times []time.Duration
	for range cliRuns {
		began := time.Now()
		for page := 1; page <= apiInstances/apiPage; page++ {
			if _, err := get(ctx, client, api+"/api/v1/instances?pageSize="+strconv.Itoa(apiPage)+"&page="+strconv.Itoa(page), token); err != nil {
				return 0, err
			}
		}
		times = append(times, time.Since(began))
	}
	return quantile(times, 0.5), nil
}

// measureLogs measures the CPU time of orrery logs -f beside a server that prints cliLineRate lines a second.
func (c *cliBench) measureLogs(ctx context.Context) error {
	s, err := c.startStandalone(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	c.env = []string{"ORRERY_SERVER=" + s.ready.API, "ORRERY_TOKEN=" + s.token}
	spec := map[string]any{
		"name": "print", "command": cliPrinter, "memoryMb": 64, "minInstances": 1, "shutdownGraceSeconds": 1,
		"portRangeStart": 20000, "portRangeEnd": 29999,
	}
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return err
	}
	if _, _, err := c.run(ctx, "wait", "instance", "print-1", "--for", "running", "--timeout", "1m"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.program, "logs", "print-1", "-f", "-n", "0")
	cmd.Env, cmd.Stderr = append(os.Environ(), c.env...), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	in, began, before := bufio.NewScanner(out), time.Now(), time.Duration(0)
	for n := 0; n < cliLines; n++ {
		if !in.Scan() {
			return fmt.Errorf("orrery logs ended after %d lines: %w", n, errors.Join(in.Err(), ctx.Err()))
		}
		if n == 0 {
			began = time.Now()
			if before, err = cpuOf(cmd.Process.Pid); err != nil {
				return err
			}
		}
	}
	after, err := cpuOf(cmd.Process.Pid)
	if err != nil {
		return err
	}
	took := time.Since(began)
	c.report("cli_logs_lines_per_s", float64(cliLines)/took.Seconds(), "lines/s", cliLineRate)
	c.report("cli_logs_cpu_pct", 100*(after-before).Seconds()/took.Seconds(), "%", 50)
	return nil
}

// redrawResult finds the time of a redraw in the output of go test.
var redrawResult = regexp.MustCompile(`BenchmarkRedraw\S*\s+\d+\s+(\d+) ns/op`)

// measureTop measures how long orrery top needs for a redraw with ten thousand instances.
func (c *cliBench) measureTop(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkRedraw$", "-benchtime", "50x", "./cli/internal/verbs/top")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go test -bench Redraw: %w", err)
	}
	m := redrawResult.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("go test printed no BenchmarkRedraw: %s", out)
	}
	ns, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return err
	}
	c.report("cli_top_redraw_ms", ns/1e6, "ms", 50)
	return nil
}
