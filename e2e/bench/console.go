package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/standalone/stack"
)

const (
	// talkers is how many instances print fifty lines a second each.
	talkers = 200
	// consoleLines is how many lines the delay is measured with.
	consoleLines = 1000
	// talk repeatedly prints the time, in seconds with a fraction, until it reads a line.
	talk = `while ! read -t 0.02 stop; do echo "$EPOCHREALTIME"; done`
)

// measureConsole measures the delay from a server's print to a viewer of its console, with
// one and with many printing servers. It also measures the agent's CPU time for the many.
func measureConsole(ctx context.Context, b *bench) error {
	r, err := b.startSite(ctx, oneNode)
	if err != nil {
		return err
	}
	defer r.close()
	s := &server{ready: stack.Ready{API: r.Gateways()[0]}, token: r.token, http: r.http}
	spec := map[string]any{
		"name": "talk", "command": talk, "memoryMb": 16, "maxInstances": 0, "shutdownGraceSeconds": 1,
		"portRangeStart": 20000, "portRangeEnd": 29999,
	}
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return err
	}
	for _, n := range []int{1, talkers} {
		if err := s.scale(ctx, "talk", n); err != nil {
			return err
		}
		delays, err := s.watch(ctx, "talk-1", consoleLines)
		if err != nil {
			return err
		}
		b.report(fmt.Sprintf("console_line_%d_p50_ms", n), delays[len(delays)/2], "ms", -1)
		b.report(fmt.Sprintf("console_line_%d_p99_ms", n), delays[len(delays)*99/100], "ms", -1)
	}
	rss, cpu, err := settle(ctx, r.Nodes()[0].PID())
	if err != nil {
		return err
	}
	b.report("console_200x50_cpu_pct", cpu, "%", -1)
	b.report("console_200x50_rss_mib", rss, "MiB", -1)
	return nil
}

// watch returns the delays of lines to a viewer of a console, in milliseconds, sorted.
func (s *server) watch(ctx context.Context, ref string, lines int) ([]float64, error) {
	resp, err := wire.Send(ctx, s.http, wire.Request{Method: http.MethodGet, URL: s.ready.API + "/api/v1/instances/" + ref + "/console?lines=0", Token: s.token})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var delays []float64
	for in := bufio.NewScanner(resp.Body); len(delays) < lines && in.Scan(); {
		text, ok := strings.CutPrefix(in.Text(), "data: ")
		printed, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			continue
		}
		delays = append(delays, float64(time.Now().UnixMicro())/1e3-printed*1e3)
	}
	if len(delays) < lines {
		return nil, fmt.Errorf("the console ended after %d lines", len(delays))
	}
	slices.Sort(delays)
	return delays, nil
}
