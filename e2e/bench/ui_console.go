package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/e2e/dashboard/browser"
	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// uiConsoleRate is how many lines a second the server prints, uiConsoleTime for how long.
	uiConsoleRate = 5000
	uiConsoleTime = 15 * time.Second
	// uiChatter prints lines at that rate until it reads a line.
	uiChatter = `n=0; start=${EPOCHREALTIME/./}; while ! read -t 0.01 stop; do ` +
		`due=$(( (${EPOCHREALTIME/./} - start) * %d / 1000000 )); ` +
		`while [ $n -lt $due ]; do n=$((n+1)); echo "[12:34:56 INFO]: Player$n moved to world_nether at 120.5, 64.0, -32.5"; done; done`
)

// measureUIConsole measures how many frames the dashboard draws a second while an open console prints.
func measureUIConsole(ctx context.Context, b *bench) error {
	return inBrowser(func(chromium *browser.Browser) error { return b.watchChatter(ctx, chromium) })
}

func (b *bench) watchChatter(ctx context.Context, chromium *browser.Browser) error {
	s, err := b.startStandalone(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	spec := map[string]any{
		"name": "chatter", "command": fmt.Sprintf(uiChatter, uiConsoleRate), "memoryMb": 16, "maxInstances": 0, "shutdownGraceSeconds": 1,
		"portRangeStart": 20000, "portRangeEnd": 29999,
	}
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return err
	}
	if err := s.scale(ctx, "chatter", 1); err != nil {
		return err
	}
	password, err := os.ReadFile(s.ready.PasswordFile)
	if err != nil {
		return err
	}
	progress("a console with %d lines a second", uiConsoleRate)
	return asTest(func(t testing.TB) error {
		p := chromium.Open(t, s.ready.API)
		p.LogIn(s.ready.User, strings.TrimSpace(string(password)))
		p.Go("#/instances/chatter-1")
		p.Until("the console prints", `document.querySelectorAll(".console-line").length > 20 && document.querySelector(".console-bar .live.good")`)
		p.Eval(`(() => {
			window.frames60 = [];
			const printed = () => Math.max(0, ...[...document.querySelectorAll(".console-line")].map((l) => Number(/Player(\d+)/.exec(l.textContent)?.[1] ?? 0)));
			window.printed = printed;
			window.printedFirst = [printed(), performance.now()];
			const frame = (at) => { window.frames60.push(at); requestAnimationFrame(frame); };
			requestAnimationFrame(frame);
		})()`)
		if !pause.For(ctx, uiConsoleTime) {
			return ctx.Err()
		}
		var seen struct {
			Frames []float64 // in ms
			Lines  float64   // a second
		}
		p.Into(&seen, `({ frames: window.frames60, lines: (window.printed() - window.printedFirst[0]) * 1000 / (performance.now() - window.printedFirst[1]) })`)
		b.report("ui_console_fps", slices.Min(perSecond(seen.Frames)), "1/s", uiFrames)
		b.report("ui_console_lines_per_s", seen.Lines, "1/s", uiConsoleRate)
		return nil
	})
}

// perSecond counts the frames of each complete second.
func perSecond(at []float64) []float64 {
	counts := make([]float64, max(1, int((at[len(at)-1]-at[0])/1000)))
	for _, ms := range at {
		if second := int((ms - at[0]) / 1000); second < len(counts) {
			counts[second]++
		}
	}
	return counts
}
