package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/standalone/stack"
)

// server is a running standalone program.
type server struct {
	cmd   *exec.Cmd
	dir   string
	took  time.Duration // from exec to ready.json
	ready stack.Ready
	token string
	http  *http.Client
}

// startStandalone runs the program on a new data directory.
func (b *bench) startStandalone(ctx context.Context, args ...string) (*server, error) {
	dir, err := os.MkdirTemp(b.dir, "data-")
	if err != nil {
		return nil, err
	}
	if err := b.placeEtcd(dir); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args = append([]string{"-data", dir, "-run-dir", b.memory, "-listen", "127.0.0.1:0"}, args...)
	s := &server{cmd: exec.Command(b.standalone, args...), dir: dir, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx); err != nil {
		s.stop()
		return nil, err
	}
	s.took = time.Since(began)
	s.token, err = stack.Login(ctx, s.ready.API, s.ready.User, s.ready.PasswordFile)
	return s, err
}

// placeEtcd moves the etcd directory of a data directory to etcdDir, if that is set.
func (b *bench) placeEtcd(dir string) error {
	if b.etcdDir == "" {
		return nil
	}
	etcd, err := os.MkdirTemp(b.etcdDir, "etcd-")
	if err != nil {
		return err
	}
	return os.Symlink(etcd, filepath.Join(dir, "etcd"))
}

func (s *server) awaitReady(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if b, err := os.ReadFile(filepath.Join(s.dir, "ready.json")); err == nil {
			return json.Unmarshal(b, &s.ready)
		}
		if !pause.For(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return fmt.Errorf("standalone was not ready within a minute:\n%s", log)
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	s.http.CloseIdleConnections()
}

func (s *server) call(ctx context.Context, method, path string, body, into any) error {
	return wire.Call(ctx, s.http, wire.Request{Method: method, URL: s.ready.API + path, Token: s.token, Body: body}, into)
}

// collect makes the process collect its garbage, through its admin listener, to separate
// memory in use from memory not yet returned.
func (s *server) collect(ctx context.Context) error {
	admin, secret, err := s.admin()
	if err != nil {
		return err
	}
	return wire.Call(ctx, s.http, wire.Request{
		Method: http.MethodGet, URL: "http://" + admin + "/debug/pprof/heap?gc=1", Token: secret,
	}, nil)
}

// rssMiB returns the current resident memory of the process.
func (s *server) rssMiB() (float64, error) { return memoryMiB(s.cmd.Process.Pid, "VmRSS:") }

// memoryMiB returns a field of a process's status.
func memoryMiB(pid int, field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in the status of process %d", field, pid)
}

// cpu returns the CPU time of the process, user and system.
func (s *server) cpu() (time.Duration, error) { return cpuOf(s.cmd.Process.Pid) }

// cpuOf returns the CPU time of a process, user and system.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// These are the fields after the command's closing parenthesis. utime and stime are the
	// 14th and 15th of all.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("reading processor time: %v %v", err1, err2)
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on Linux
	return time.Duration(user+system) * tick, nil
}
