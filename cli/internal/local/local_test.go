package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/local"
)

// program writes a shell script and returns its path.
func program(t *testing.T, dir, name, script string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// within returns a context that fails the test rather than let it hang.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestFind(t *testing.T) {
	beside, other := t.TempDir(), t.TempDir()
	self := filepath.Join(beside, "orrery")
	_, err := local.Find(self, other)
	if exit.CodeOf(err) != exit.NotFound || !strings.Contains(exit.HintOf(err), "make build") {
		t.Errorf("got %v, hint %q", err, exit.HintOf(err))
	}
	if err := os.WriteFile(filepath.Join(beside, "standalone"), nil, 0o644); err != nil { // not executable
		t.Fatal(err)
	}
	inPath := program(t, other, "orrery-standalone", "")
	if got, err := local.Find(self, "/nonexistent:"+other); got != inPath || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, inPath)
	}
	if err := os.Remove(filepath.Join(beside, "standalone")); err != nil {
		t.Fatal(err)
	}
	own := program(t, beside, "standalone", "")
	if got, err := local.Find(self, other); got != own || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, own)
	}
}

func TestCommand(t *testing.T) {
	got, err := local.Command("/d", true, []string{"-listen", "127.0.0.1:0"})
	if want := []string{"-data", "/d", "-demo", "-listen", "127.0.0.1:0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, flag := range []string{"-data", "--data=x", "-demo"} {
		if _, err := local.Command("/d", false, []string{flag}); exit.CodeOf(err) != exit.Usage {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

// ready is a script that says that it is ready, the way a standalone does, and then runs rest.
const ready = `printf '{"api":"http://127.0.0.1:1","user":"admin","pid":%d}' $$ >"$2/new" && mv "$2/new" "$2/ready.json"
`

func TestStartReturnsWhenTheProgramIsReady(t *testing.T) {
	dir := t.TempDir()
	stale := fmt.Sprintf(`{"api":"http://stale","pid":%d}`, 1)
	if err := os.WriteFile(filepath.Join(dir, "ready.json"), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	script := program(t, t.TempDir(), "standalone", "echo starting\n"+ready+"exec sleep 600\n")
	got, err := local.Start(within(t), script, []string{"-data", dir}, dir)
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.FindProcess(got.PID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Kill() })
	if got.API != "http://127.0.0.1:1" || got.User != "admin" {
		t.Errorf("got %+v", got)
	}
	if log, err := os.ReadFile(local.Log(dir)); err != nil || string(log) != "starting\n" {
		t.Errorf("the log has %q, %v", log, err)
	}
}

func TestStartSaysWhyTheProgramEnded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(local.Log(dir), []byte("of an earlier start\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := program(t, t.TempDir(), "standalone", "echo 'the port is taken' >&2; exit 3\n")
	_, err := local.Start(within(t), script, nil, dir)
	if err == nil || !strings.Contains(err.Error(), "the port is taken") || strings.Contains(err.Error(), "earlier") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(exit.HintOf(err), local.Log(dir)) {
		t.Errorf("the hint is %q", exit.HintOf(err))
	}
}

func TestStartThatIsGivenUpNamesTheProcess(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	script := program(t, t.TempDir(), "standalone", "exec sleep 600\n")
	_, err := local.Start(ctx, script, nil, dir)
	var pid int
	if _, scanErr := fmt.Sscanf(exit.HintOf(err), "it is still starting, as process %d; orrery down stops it", &pid); scanErr != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, hint %q: %v", err, exit.HintOf(err), scanErr)
	}
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		t.Errorf("the process does not run: %v", err)
	}
}

func TestRunningIsWhoHoldsTheLock(t *testing.T) {
	dir := t.TempDir()
	if pid, err := local.Running(dir); pid != 0 || err != nil {
		t.Errorf("without a lock: %d, %v", pid, err)
	}
	path := filepath.Join(dir, "lock")
	if err := os.WriteFile(path, []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid, err := local.Running(dir); pid != 0 || err != nil {
		t.Errorf("with the lock of a program that ended: %d, %v", pid, err)
	}
	lock := flock.New(path)
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if pid, err := local.Running(dir); pid != 4711 || err != nil {
		t.Errorf("while it is locked: %d, %v", pid, err)
	}
	for _, content := range []string{"", "garbage", "-1", "0"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if pid, err := local.Running(dir); pid != 0 || exit.CodeOf(err) != exit.Conflict || !strings.Contains(exit.HintOf(err), "fuser") {
			t.Errorf("a lock with %q: %d, %v", content, pid, err)
		}
	}
}

func TestFindReady(t *testing.T) {
	dir := t.TempDir()
	if _, err := local.FindReady(dir); exit.CodeOf(err) != exit.NotFound || !strings.Contains(exit.HintOf(err), "orrery up") {
		t.Errorf("got %v, hint %q", err, exit.HintOf(err))
	}
	if err := os.WriteFile(filepath.Join(dir, "ready.json"), []byte(`{"api":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := local.FindReady(dir); err == nil || !strings.Contains(err.Error(), "ready.json") {
		t.Errorf("half a file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ready.json"), []byte(`{"api":"http://a","pid":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := local.FindReady(dir); err != nil || got.API != "http://a" || got.PID != 7 || got.Data != dir {
		t.Errorf("got %+v, %v", got, err)
	}
}
