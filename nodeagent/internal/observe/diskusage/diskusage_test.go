package diskusage_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/nodeagent/internal/observe/diskusage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

func write(t *testing.T, size int, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func used(t *testing.T, dirs ...string) int64 {
	t.Helper()
	n, err := diskusage.NewMeter().Used(t.Context(), dirs...)
	if err != nil {
		t.Fatal(err)
	}
	return n / mib
}

func TestUsedCountsEachFileOnce(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	file := write(t, mib, dir, "world", "region", "a")
	write(t, mib, other, "b")
	if err := os.Link(file, filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	holes := write(t, 1, dir, "holes")
	if err := os.Truncate(holes, 1<<40); err != nil {
		t.Fatal(err)
	}
	if n := used(t, dir); n != 1 {
		t.Errorf("%d MiB", n)
	}
	if n := used(t, dir, other, filepath.Join(dir, "nothing")); n != 2 {
		t.Errorf("%d MiB together", n)
	}
}

func TestWalkEndsWithContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for n := range 600 {
		write(t, 0, dir, string(rune('a'+n%26)), time.Duration(n).String())
	}
	if n, err := diskusage.NewMeter().Used(ctx, dir); err == nil {
		t.Errorf("%d bytes", n)
	}
}

func TestWatchMeasuresRepeatedly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var told []int64
		take := func() []int64 {
			mu.Lock()
			defer mu.Unlock()
			all := told
			told = nil
			return all
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			diskusage.NewMeter().Watch(ctx, []string{dir}, func(n int64) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, n/mib)
			})
		}()
		pass := func() []int64 { <-time.After(time.Minute); synctest.Wait(); return take() }
		if got := pass(); len(got) < 2 || got[0] != 0 {
			t.Errorf("an empty directory: %d MiB", got)
		}
		file := write(t, 3*mib, dir, "large")
		if got := pass(); len(got) == 0 || got[0] != 3 {
			t.Errorf("a file of three: %d", got)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if got := pass(); len(got) == 0 || got[0] != 0 {
			t.Errorf("removed again: %d", got)
		}
		cancel()
		<-done
	})
}

func TestWatchAllMeasuresNewDirectoriesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dirs := map[string][]string{"old": {t.TempDir()}, "gone": {filepath.Join(t.TempDir(), "nothing")}}
		write(t, mib, dirs["old"][0], "a")
		var all sync.Mutex // guards dirs and told
		told := map[string][]int64{}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			diskusage.NewMeter().WatchAll(ctx, func() map[string][]string {
				all.Lock()
				defer all.Unlock()
				return maps.Clone(dirs)
			}, func(name string, used int64) {
				all.Lock()
				defer all.Unlock()
				told[name] = append(told[name], used/mib)
			})
		}()
		pass := func(d time.Duration) map[string][]int64 {
			<-time.After(d)
			synctest.Wait()
			all.Lock()
			defer all.Unlock()
			return maps.Clone(told)
		}
		pass(time.Second)
		fresh := t.TempDir()
		write(t, 2*mib, fresh, "a")
		all.Lock()
		dirs["new"] = []string{fresh}
		all.Unlock()
		got := pass(10 * time.Second)
		if want := (map[string][]int64{"old": {1}, "gone": {0}, "new": {2}}); !maps.EqualFunc(got, want, slices.Equal[[]int64]) {
			t.Errorf("%v, want %v", got, want)
		}
		write(t, mib, fresh, "b")
		if got := pass(70 * time.Second)["new"]; len(got) != 2 || got[1] != 3 {
			t.Errorf("a minute later: %v", got)
		}
		cancel()
		<-done
	})
}
