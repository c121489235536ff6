package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const restarts = 60

// begin is the program that is restarted: it reports its PID and becomes sleep.
type begin struct {
	path string
	// pids receives the PIDs of its processes, with the time of each report.
	pids chan born
	fifo *os.File
}

type born struct {
	pid int
	at  time.Time
}

func newBegin(dir string) (*begin, error) {
	dir, err := os.MkdirTemp(dir, "begin-")
	if err != nil {
		return nil, err
	}
	fifo := filepath.Join(dir, "begun")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Chmod(fifo, 0o622), os.Chmod(dir, 0o711)); err != nil { // instances run as other users
		return nil, err
	}
	file, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	b := &begin{path: filepath.Join(dir, "begin"), pids: make(chan born, 16), fifo: file}
	if err := os.WriteFile(b.path, []byte("#!/bin/sh\necho $$ >"+fifo+"\nexec sleep 1000000\n"), 0o755); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(file); lines.Scan(); {
			at := time.Now()
			if pid, err := strconv.Atoi(strings.TrimSpace(lines.Text())); err == nil {
				b.pids <- born{pid, at}
			}
		}
	}()
	return b, nil
}

// next waits for the next process.
func (b *begin) next() (born, error) {
	select {
	case n := <-b.pids:
		return n, nil
	case <-time.After(time.Minute):
		return born{}, fmt.Errorf("%s was not started", b.path)
	}
}

// measureRestart kills servers that their node restarts in place, and measures the time
// until the next process runs its first command. Each sample is the first crash of a new
// instance, because the agent pauses after a second crash.
func (s *server) measureRestart(ctx context.Context, b *bench, events *eventStream) error {
	program, err := newBegin(b.dir)
	if err != nil {
		return err
	}
	defer program.fifo.Close()
	limit, err := program.limit(ctx)
	if err != nil {
		return err
	}
	var all []time.Duration
	for n := range restarts + warmup {
		group := "restart" + strconv.Itoa(n)
		first, err := s.startRestarted(ctx, events, program, group)
		if err != nil {
			return err
		}
		began, ended, err := program.killed(first)
		if err != nil {
			return err
		}
		if n >= warmup {
			all = append(all, ended.Sub(began))
		}
		if err := s.call(ctx, http.MethodDelete, "/api/v1/groups/"+group, nil, nil); err != nil {
			return err
		}
	}
	b.report("restart_p50_ms", quantile(all, 0.5), "ms", limit)
	b.report("restart_p99_ms", quantile(all, 0.99), "ms", limit)
	return nil
}

// startRestarted creates a group with one server that its node restarts in place, and
// returns the server's process.
func (s *server) startRestarted(ctx context.Context, events *eventStream, program *begin, group string) (born, error) {
	spec := map[string]any{"name": group, "command": "exec " + program.path, "onCrash": "restart", "memoryMb": 16, "minInstances": 1}
	if err := s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return born{}, err
	}
	if _, err := events.await(group, "RUNNING", ""); err != nil {
		return born{}, err
	}
	return program.next()
}

// killed kills a process of the program. It returns the time of the kill and the start of
// the next process.
func (b *begin) killed(process born) (killed, again time.Time, err error) {
	killed = time.Now()
	if err := syscall.Kill(process.pid, syscall.SIGKILL); err != nil {
		return killed, again, err
	}
	next, err := b.next()
	return killed, next.at, err
}

// limit measures the machine's minimum: to await the end of the killed program, and to fork
// and exec it again.
func (b *begin) limit(ctx context.Context) (float64, error) {
	var all []time.Duration
	for range restarts {
		cmd := exec.CommandContext(ctx, b.path)
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		if _, err := b.next(); err != nil {
			return 0, err
		}
		killed := time.Now()
		if err := cmd.Process.Kill(); err != nil {
			return 0, err
		}
		_ = cmd.Wait()
		again := exec.CommandContext(ctx, b.path)
		if err := again.Start(); err != nil {
			return 0, err
		}
		second, err := b.next()
		if err != nil {
			return 0, err
		}
		all = append(all, second.at.Sub(killed))
		_ = again.Process.Kill()
		_ = again.Wait()
	}
	return quantile(all, 0.5), nil
}
