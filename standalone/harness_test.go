package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/standalone/stack"
)

const (
	// beTheProgram makes the test binary act as the standalone program. Its value is the first
	// port of the demo.
	beTheProgram = "ORRERY_TEST_STANDALONE"
	// The programs of different tests run at the same time. Each has demo ports of its own:
	// otherwise the readiness check of one could reach a server of another.
	firstDemoPort, demoPortsPerProgram = 26000, 10
)

// programs counts the programs that the tests have started.
var programs atomic.Int32

// TestMain lets the test binary act as the standalone program and as the demo's game
// server, which the program starts from its own file.
func TestMain(m *testing.M) {
	first, err := strconv.Atoi(os.Getenv(beTheProgram))
	if err == nil {
		demoPorts = fleet.PortRange{Start: first, End: first + demoPortsPerProgram - 1}
	}
	if err == nil || len(os.Args) > 1 && os.Args[1] == arenaCommand {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// program is a running standalone.
type program struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr await.Text
	data           string
	ended          chan struct{}
	ready          stack.Ready
	token          string
}

// command returns a command for standalone with exactly these arguments.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	first := firstDemoPort + demoPortsPerProgram*(int(programs.Add(1))-1)
	cmd.Env = append(os.Environ(), beTheProgram+"="+strconv.Itoa(first))
	return cmd
}

// launch starts a standalone on free ports in a data directory without waiting for it. Each
// prepare function may change the command first.
func launch(t *testing.T, data string, args []string, prepare ...func(*exec.Cmd)) *program {
	t.Helper()
	p := &program{t: t, data: data, ended: make(chan struct{})}
	p.cmd = command(t, append([]string{"-data", data, "-listen", "127.0.0.1:0"}, args...)...)
	for _, change := range prepare {
		change(p.cmd)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		sweep(t, data)
		if t.Failed() {
			t.Logf("standalone said:\n%s%s", &p.stdout, &p.stderr)
		}
	})
	return p
}

// start launches a standalone, waits for its ready.json and logs in.
func start(t *testing.T, data string, args ...string) *program {
	t.Helper()
	return launch(t, data, args).login()
}

// login waits for ready.json and logs in.
func (p *program) login() *program {
	t := p.t
	t.Helper()
	p.awaitReady()
	var err error
	if p.token, err = stack.Login(t.Context(), p.ready.API, p.ready.User, p.ready.PasswordFile); err != nil {
		t.Fatalf("ready, but login does not work: %v", err)
	}
	return p
}

func (p *program) awaitReady() {
	p.t.Helper()
	await.That(p.t, "ready.json", func() string {
		select {
		case <-p.ended:
			p.t.Fatalf("ended before it was ready:\n%s", &p.stderr)
		default:
		}
		b, err := os.ReadFile(filepath.Join(p.data, "ready.json"))
		if err != nil {
			return err.Error()
		}
		if err := json.Unmarshal(b, &p.ready); err != nil {
			p.t.Fatalf("ready.json was seen half written: %v: %q", err, b)
		}
		if p.ready.PID != p.cmd.Process.Pid {
			return fmt.Sprintf("ready.json of pid %d", p.ready.PID)
		}
		return ""
	})
}

// get reads a value from the API.
func (p *program) get(path string, into any) {
	p.t.Helper()
	if err := p.call(http.MethodGet, path, nil, into); err != nil {
		p.t.Fatalf("GET %s: %v", path, err)
	}
}

func (p *program) call(method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), await.Patience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return wire.Call(ctx, client, wire.Request{Method: method, URL: p.ready.API + path, Token: p.token, Body: body}, into)
}

// instance are the fields of an instance that the tests read.
type instance struct {
	ID, UID, State string
	Port, PID      int
}

// running waits until exactly n instances exist and all run. It returns them by name.
func (p *program) running(n int) map[string]instance {
	p.t.Helper()
	var byName map[string]instance
	await.That(p.t, fmt.Sprint(n, " running instances"), func() string {
		var page struct{ Data []instance }
		p.get("/api/v1/services?pageSize=100", &page)
		byName = map[string]instance{}
		for _, i := range page.Data {
			if i.State == "RUNNING" {
				byName[i.ID] = i
			}
		}
		if len(byName) == n {
			return ""
		}
		return fmt.Sprintf("%+v", page.Data)
	})
	return byName
}

// stop sends SIGTERM and checks for a clean end.
func (p *program) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	p.awaitEnd()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Fatalf("exit code %d after SIGTERM, want 0:\n%s", code, &p.stderr)
	}
}

// kill sends SIGKILL.
func (p *program) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	p.awaitEnd()
}

func (p *program) awaitEnd() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(await.Patience):
		p.t.Fatalf("did not end:\n%s", &p.stderr)
	}
}

// refused runs a standalone that should refuse to start, and returns its output.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	prepared := command(t, args...)
	cmd := exec.CommandContext(ctx, prepared.Path, args...)
	cmd.Env = prepared.Env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Fatalf("%v: %v, want exit status 2; stdout %q, stderr %q", args, err, stdout.String(), stderr.String())
	}
	if stdout.Len() > 0 {
		t.Errorf("%v: stdout %q, want nothing", args, stdout.String())
	}
	return stderr.String()
}

// processes returns the living processes whose working directory is below a directory.
func processes(t *testing.T, dir string) []int {
	t.Helper()
	return proctest.Where(t, func(p proctest.Process) bool { return strings.HasPrefix(p.Dir(), dir+"/") })
}

// sweep kills the instances that a test left running in its data directory.
func sweep(t *testing.T, dir string) {
	t.Helper()
	await.That(t, "no instance left", func() string {
		left := processes(t, dir)
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			return ""
		}
		return fmt.Sprint(left)
	})
}
