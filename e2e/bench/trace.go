package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/exp/trace"

	"github.com/orreryhq/orrery/e2e/cluster/site"
)

// span is one region of the program's execution trace, or a moment seen by the client.
type span struct {
	name string
	at   time.Time
	took time.Duration
}

// measureTrace prints what happens during one launch, one replacement of a killed server
// and one restart in place. It shows the regions that the program records in its execution
// trace (commits, views, preparation, start of the process, probes) between the first and
// the last moment.
func measureTrace(ctx context.Context, b *bench) error {
	s, err := b.startStandalone(ctx, "-memory", "1000000", "-cpu", "1000000")
	if err != nil {
		return err
	}
	defer s.stop()
	if err := s.writeTemplate(); err != nil {
		return err
	}
	events, err := s.events(ctx)
	if err != nil {
		return err
	}
	defer events.close()
	if err := s.declare(ctx, b, "traced", 0); err != nil {
		return err
	}
	launch := func() (stateChange, error) {
		if err := s.call(ctx, http.MethodPost, "/api/v1/groups/traced/start", nil, nil); err != nil {
			return stateChange{}, err
		}
		return events.await("traced", "RUNNING", "")
	}
	for range warmup { // to fill caches and open connections
		if _, err := launch(); err != nil {
			return err
		}
	}
	if err := s.printTrace(ctx, b.out, "launch", func() (time.Time, time.Time, error) {
		began := time.Now()
		online, err := launch()
		return began, online.at, err
	}); err != nil {
		return err
	}

	var victim victim
	heal := func() (began, ended time.Time, err error) {
		began = time.Now()
		if err := victim.kill(); err != nil {
			return began, ended, err
		}
		again, err := events.await(victim.group, "RUNNING", "")
		return began, again.at, err
	}
	for n := range warmup + 1 { // a new group each time, so that there is no back-off
		if victim, err = s.startVictim(ctx, b, events, "healed"+strconv.Itoa(n)); err != nil {
			return err
		}
		if n == warmup {
			break
		}
		if _, _, err := heal(); err != nil {
			return err
		}
	}
	if err := s.printTrace(ctx, b.out, "heal", heal); err != nil {
		return err
	}

	program, err := newBegin(b.dir)
	if err != nil {
		return err
	}
	defer program.fifo.Close()
	first, err := s.startRestarted(ctx, events, program, "restarted")
	if err != nil {
		return err
	}
	return s.printTrace(ctx, b.out, "restart", func() (time.Time, time.Time, error) { return program.killed(first) })
}

// printTrace records a second of the program's execution trace while it calls do, and
// prints the spans between the times that do returns.
func (s *server) printTrace(ctx context.Context, out io.Writer, what string, do func() (began, ended time.Time, err error)) error {
	admin, secret, err := s.admin()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/debug/pprof/trace?seconds=2", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := s.http.Do(req) // the response header arrives once the trace is on
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the trace was answered with %s", resp.Status)
	}
	began, ended, err := do()
	if err != nil {
		return err
	}
	spans, err := readSpans(resp.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "TRACE %s %s ms\n", what, short(milliseconds(ended.Sub(began))))
	for _, sp := range spans {
		if from := sp.at.Sub(began); sp.at.Add(sp.took).After(began) && sp.at.Before(ended) {
			fmt.Fprintf(out, "TRACE %7.2f ms %6.2f ms  %s\n", milliseconds(from), milliseconds(sp.took), sp.name)
		}
	}
	return nil
}

// admin returns the address of the program's admin listener and the required secret.
func (s *server) admin() (address, secret string, err error) {
	log, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return "", "", err
	}
	if address, err = site.AdminAddress(log); err != nil {
		return "", "", err
	}
	b, err := os.ReadFile(filepath.Join(s.dir, "cluster-secret"))
	return address, strings.TrimSpace(string(b)), err
}

// readSpans reads the regions of an execution trace, sorted by start.
func readSpans(from io.Reader) ([]span, error) {
	r, err := trace.NewReader(from)
	if err != nil {
		return nil, err
	}
	var spans []span
	var clock *trace.ClockSnapshot
	wall := func(t trace.Time) time.Time { return clock.Wall.Add(t.Sub(clock.Trace)) }
	type key struct {
		goroutine trace.GoID
		name      string
	}
	open := map[key]time.Time{}
	for {
		e, err := r.ReadEvent()
		if err == io.EOF {
			slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(b.took, a.took)) })
			return spans, nil
		}
		if err != nil {
			return nil, err
		}
		switch e.Kind() {
		case trace.EventSync:
			if c := e.Sync().ClockSnapshot; c != nil {
				clock = c
			}
		case trace.EventRegionBegin:
			open[key{e.Goroutine(), e.Region().Type}] = wall(e.Time())
		case trace.EventRegionEnd:
			k := key{e.Goroutine(), e.Region().Type}
			if at, ok := open[k]; ok {
				spans = append(spans, span{k.name, at, wall(e.Time()).Sub(at)})
				delete(open, k)
			}
		}
	}
}
