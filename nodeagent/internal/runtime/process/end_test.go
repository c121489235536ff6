package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// hung is a multiplexer that neither delivers output nor ends a session.
type hung struct {
	Terminal
	cut    error
	closed bool
}

func (h *hung) Drain(ctx context.Context, _, _ string) {
	<-ctx.Done()
	h.cut = ctx.Err()
}

func (h *hung) Close(ctx context.Context, _ string) {
	<-ctx.Done()
	h.closed = true
}

func TestKilledRunWaitsBrieflyForItsOutput(t *testing.T) {
	h := &hung{}
	p := &run{terminal: h, killed: make(chan struct{}), exited: make(chan struct{})}
	close(p.killed)
	p.drain()
	if !h.closed || !errors.Is(h.cut, context.Canceled) {
		t.Errorf("closed %v, and the wait for its output ended with: %v", h.closed, h.cut)
	}
}

// aside returns the directories to be removed.
func aside(tmpDir string) []string {
	dirs, _ := filepath.Glob(tmpDir + ".*")
	return dirs
}

func TestExitedDoesNotWaitForTmpRemoval(t *testing.T) {
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	dir := t.TempDir()
	s := runtime.Spec{
		InstanceID: "tmp" + filepath.Base(filepath.Dir(dir)), Dir: dir, RunDir: filepath.Join(dir, "run"), TmpDir: filepath.Join(dir, "own"), LogPath: filepath.Join(dir, "log"),
		Command: "mkdir -p own/a/b; echo 1 >own/a/b/c; ln -s / own/root", Env: []string{"PATH=" + os.Getenv("PATH")},
	}
	run := func() {
		t.Helper()
		p, err := r.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
	}
	r.trash.one.Lock() // as if a removal took forever
	run()
	run()
	if dirs := aside(s.TmpDir); len(dirs) != 2 {
		t.Errorf("set aside: %q", dirs)
	}
	if _, err := os.Stat(s.TmpDir); err == nil {
		t.Error("the next run sees the old files")
	}
	r.trash.one.Unlock()
	await.That(t, "its removal", func() string {
		dirs := aside(s.TmpDir)
		return await.Unless(len(dirs) == 0, "%q", dirs)
	})
}

func TestCloseStopsTmpRemoval(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := clearTmp(dir); err != nil {
		t.Fatal(err)
	}
	before := newTrash()
	before.close()
	before.empty(dir)
	before.close()
	if len(aside(dir)) != 1 {
		t.Error("the removal continues")
	}
	next := newTrash()
	next.empty(dir)
	await.That(t, "the removal by the next runtime", func() string { return await.Unless(len(aside(dir)) == 0, "it is left") })
	next.close()
}
