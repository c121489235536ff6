package console

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
)

// running is a follower, changed before it runs, that runs until the test ends.
func running(t *testing.T, change func(*Follower)) (f *Follower, said *bytes.Buffer) {
	t.Helper()
	said = &bytes.Buffer{}
	f = NewFollower(slog.New(slog.NewTextHandler(said, nil)))
	change(f)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return f, said
}

func TestLogsArePolledWithoutInotify(t *testing.T) {
	full := func(int, string, uint32) (int, error) { return -1, unix.ENOSPC }
	cases := map[string]struct{ before, after func(*Follower) }{
		"inotify is unavailable":   {before: func(f *Follower) { _ = f.inotify.Close(); f.inotify, f.polling = nil, true }},
		"too many inotify watches": {before: func(f *Follower) { f.add = full }},
		"inotify fails later":      {after: func(f *Follower) { _ = f.inotify.Close() }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f, _ := running(t, func(f *Follower) {
				if c.before != nil {
					c.before(f)
				}
			})
			path, _ := logOf(t, 0, ten)
			f.Maintain(path, 1<<20, true)
			defer f.Release(path)
			w := f.Follow(path)
			defer w.Close()
			if c.after != nil {
				c.after(f)
			}
			for n := range 2 { // and again: not once only
				changed := w.Changed()
				if err := os.WriteFile(path, []byte(strings.Repeat(ten, n+2)), 0o600); err != nil {
					t.Fatal(err)
				}
				select {
				case <-changed:
				case <-time.After(await.Patience):
					t.Fatal("nobody is told of new output")
				}
			}
			await.That(t, "the times to be noted", func() string {
				noted := openTimes(path)
				defer noted.close()
				last := noted.get(noted.count - 1)
				return await.Unless(last.end == 30 && last.at > 0, "the last is %+v", last)
			})
		})
	}
}

func TestRefusedLogIsWatchedLater(t *testing.T) {
	refuse := true
	f, said := running(t, func(f *Follower) {
		add := f.add
		f.add = func(fd int, path string, mask uint32) (int, error) {
			if refuse { // the follower's mutex is held
				return -1, unix.ENOSPC
			}
			return add(fd, path, mask)
		}
	})
	state := func() (watched bool, refused int, complaints int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		watched = len(f.logs) > 0
		for _, l := range f.logs {
			watched = watched && l.watch >= 0
		}
		return watched, f.refused, strings.Count(said.String(), "max_user_watches")
	}
	one, _ := logOf(t, 0, ten)
	two, _ := logOf(t, 0, ten)
	for _, path := range []string{one, two} {
		defer f.Follow(path).Close()
	}
	if watched, refused, complaints := state(); watched || refused != 2 || complaints != 1 {
		t.Errorf("watched %v, %d refused, said %d times", watched, refused, complaints)
	}
	f.mu.Lock()
	refuse = false
	f.mu.Unlock()
	await.That(t, "the kernel to tell of both", func() string {
		watched, refused, _ := state()
		return await.Unless(watched && refused == 0, "watched %v, %d refused", watched, refused)
	})
}

func TestBoundedLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := Bounded(dir); err != nil {
		t.Errorf("here: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if err := Bounded(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("nowhere too")
	}
}
