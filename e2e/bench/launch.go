package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/orreryhq/orrery/libs/pause"
)

const (
	launches = 60
	heals    = 40
	warmup   = 5
)

// measureLaunch measures what users wait for: from the request to a ready server, from a
// kill to the visible crash, and from a kill to a new ready server. It uses the arrival
// times of events, as a client sees them.
func measureLaunch(ctx context.Context, b *bench) error {
	limit, err := b.launchLimit(ctx)
	if err != nil {
		return err
	}
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

	var launch []time.Duration
	if err := s.declare(ctx, b, "launch", 0); err != nil {
		return err
	}
	for n := range launches + warmup {
		began := time.Now()
		if err := s.call(ctx, http.MethodPost, "/api/v1/groups/launch/start", nil, nil); err != nil {
			return err
		}
		online, err := events.await("launch", "RUNNING", "")
		if err != nil {
			return err
		}
		if n >= warmup {
			launch = append(launch, online.at.Sub(began))
		}
		if err := s.call(ctx, http.MethodPost, "/api/v1/services/"+online.UID+"/force-stop", nil, nil); err != nil {
			return err
		}
		if _, err := events.await("launch", "STOPPED", online.UID); err != nil {
			return err
		}
	}
	b.report("launch_p50_ms", quantile(launch, 0.5), "ms", limit)
	b.report("launch_p99_ms", quantile(launch, 0.99), "ms", limit)
	if err := s.measureHeal(ctx, b, events, limit); err != nil {
		return err
	}
	return s.measureRestart(ctx, b, events)
}

// victim is a server that will be killed.
type victim struct {
	group, uid string
	pid        int
}

// startVictim creates a group of one server and waits until it is ready.
func (s *server) startVictim(ctx context.Context, b *bench, events *eventStream, group string) (victim, error) {
	if err := s.declare(ctx, b, group, 1); err != nil {
		return victim{}, err
	}
	online, err := events.await(group, "RUNNING", "")
	if err != nil {
		return victim{}, err
	}
	var i struct{ PID int }
	err = s.call(ctx, http.MethodGet, "/api/v1/services/"+online.UID, nil, &i)
	return victim{group: group, uid: online.UID, pid: i.PID}, err
}

func (v victim) kill() error {
	if err := syscall.Kill(v.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing pid %d of %s: %w", v.pid, v.uid, err)
	}
	return nil
}

// measureHeal kills servers. Each sample uses a new group, so that there is no back-off.
func (s *server) measureHeal(ctx context.Context, b *bench, events *eventStream, limit float64) error {
	var seen, healed []time.Duration
	for n := range heals + warmup {
		group := "heal" + strconv.Itoa(n)
		v, err := s.startVictim(ctx, b, events, group)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := v.kill(); err != nil {
			return err
		}
		crashed, err := events.await(group, "CRASHED", v.uid)
		if err != nil {
			return err
		}
		again, err := events.await(group, "RUNNING", "")
		if err != nil {
			return err
		}
		if n >= warmup {
			seen = append(seen, crashed.at.Sub(began))
			healed = append(healed, again.at.Sub(began))
		}
		if err := s.call(ctx, http.MethodDelete, "/api/v1/groups/"+group, nil, nil); err != nil {
			return err
		}
	}
	b.report("crash_seen_p50_ms", quantile(seen, 0.5), "ms", -1)
	b.report("heal_p50_ms", quantile(healed, 0.5), "ms", limit)
	b.report("heal_p99_ms", quantile(healed, 0.99), "ms", limit)
	return nil
}

func (s *server) writeTemplate() error {
	dir := filepath.Join(s.dir, "templates", "demo", "arena")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "server.properties"), []byte("server-port=%PORT%\nmotd=%INSTANCE_NAME%\n"), 0o644)
}

// declare creates a group of arena servers, and retries until its template is published.
func (s *server) declare(ctx context.Context, b *bench, group string, minimum int) error {
	spec := map[string]any{
		"name": group, "command": "exec " + b.arena, "templates": []string{"demo/arena"},
		"fileModifications": []string{"server.properties"}, "readiness": map[string]any{"type": "port"},
		"memoryMb": 16, "minInstances": minimum, "maxInstances": 0, "portRangeStart": 20000, "portRangeEnd": 29999,
	}
	var err error
	for range 500 {
		if err = s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err == nil {
			return nil
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return err
}

// stateChange is one INSTANCE_STATE_CHANGED event with its arrival time.
type stateChange struct {
	Type     string
	UID      string
	Group    string
	NewState string
	at       time.Time
}

// eventStream is an open SSE connection. pending holds changes that have not been awaited
// yet.
type eventStream struct {
	changes chan stateChange
	pending []stateChange
	close   func()
}

func (s *server) events(ctx context.Context) (*eventStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ready.API+"/api/v1/events/stream", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := s.http.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	// The gateway ends a stream that is not read. Thousands of events may arrive between two calls of await.
	e := &eventStream{changes: make(chan stateChange, 1<<16), close: cancel}
	go func() {
		defer resp.Body.Close()
		defer close(e.changes)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data:")
			if !ok {
				continue
			}
			c := stateChange{at: time.Now()}
			if json.Unmarshal([]byte(data), &c) == nil && c.Type == "INSTANCE_STATE_CHANGED" {
				e.changes <- c
			}
		}
	}()
	return e, nil
}

// await waits for a group's next change to a state, of one instance or of any.
func (e *eventStream) await(group, state, uid string) (stateChange, error) {
	fits := func(c stateChange) bool {
		return c.Group == group && c.NewState == state && (uid == "" || c.UID == uid)
	}
	for i, c := range e.pending {
		if fits(c) {
			e.pending = append(e.pending[:i], e.pending[i+1:]...)
			return c, nil
		}
	}
	timeout := time.After(3 * time.Minute)
	for {
		select {
		case c, ok := <-e.changes:
			if !ok {
				return c, fmt.Errorf("the event stream ended")
			}
			if fits(c) {
				return c, nil
			}
			e.pending = append(e.pending, c)
		case <-timeout:
			return stateChange{}, fmt.Errorf("%s did not become %s; seen: %+v", group, state, e.pending)
		}
	}
}

// launchLimit measures the machine's minimum: four sequential commits with fsync in an
// embedded etcd, and the server program from exec to its open port.
func (b *bench) launchLimit(ctx context.Context) (float64, error) {
	commit, err := b.commitTime(ctx)
	if err != nil {
		return 0, err
	}
	boot, err := b.bootTime(ctx)
	return 4*commit + boot, err
}

func (b *bench) commitTime(ctx context.Context) (float64, error) {
	server, err := b.startEtcd("limit-etcd")
	if err != nil {
		return 0, err
	}
	defer server.Close()
	client := v3client.New(server.Server)
	defer client.Close()
	var puts []time.Duration
	for range 200 {
		began := time.Now()
		if _, err := client.Put(ctx, "limit", "value"); err != nil {
			return 0, err
		}
		puts = append(puts, time.Since(began))
	}
	return quantile(puts, 0.5), nil
}

func (b *bench) bootTime(ctx context.Context) (float64, error) {
	var boots []time.Duration
	for range 20 {
		took, err := b.bootOnce(ctx)
		if err != nil {
			return 0, err
		}
		boots = append(boots, took)
	}
	return quantile(boots, 0.5), nil
}

func (b *bench) bootOnce(ctx context.Context) (time.Duration, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(ctx, b.arena, "--port", port)
	if cmd.Dir, err = os.MkdirTemp(b.dir, "boot-"); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return time.Since(began), nil
		}
		if time.Since(began) > 10*time.Second {
			return 0, fmt.Errorf("the server did not open %s: %w", address, err)
		}
		if !pause.For(ctx, 200*time.Microsecond) {
			return 0, ctx.Err()
		}
	}
}
