package recorder_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/recorder"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a recorder over a store. It has a session after join.
type desk struct {
	*recorder.Recorder
	t     *testing.T
	store *store.Client
	dir   string

	mu    sync.Mutex
	fence *store.Fence
}

func newDesk(t *testing.T, dir string) *desk {
	t.Helper()
	d := &desk{t: t, store: storetest.New(t), dir: dir}
	var err error
	d.Recorder, err = recorder.New(recorder.Config{Store: d.store, Dir: dir, Fence: d.held, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return d
}

func (d *desk) held() (store.Fence, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fence == nil {
		return store.Fence{}, false
	}
	return *d.fence, true
}

// join opens a session.
func (d *desk) join() {
	d.t.Helper()
	key := keys.NodeSession("node-1")
	rev, err := d.store.Commit(d.t.Context(), store.Txn{Writes: []store.Write{store.Create(key, fleet.NodeSession{Node: "node-1"})}})
	if err != nil {
		d.t.Fatal(err)
	}
	f := store.FenceOf(key, rev)
	d.mu.Lock()
	d.fence = &f
	d.mu.Unlock()
	d.Kick()
}

func crashed(n int) (reports.Crash, reports.CrashTail) {
	id := fmt.Sprintf("aaaaaa-1-%d", n)
	return reports.Crash{ID: id, Instance: "aaaaaa", Group: "g", At: time.Unix(int64(n), 0).UTC()}, reports.NewCrashTail(id, []string{"x"}, false)
}

// recorded waits until n crashes are in the store and none waits.
func (d *desk) recorded(n int) []reports.Crash {
	d.t.Helper()
	var all []reports.Crash
	await.That(d.t, "the crashes", func() string {
		var err error
		all, _, err = store.List(d.t.Context(), d.store, keys.Crashes())
		files, _ := os.ReadDir(d.dir)
		return await.Unless(err == nil && len(all) == n && len(files) == 0 && d.Waiting() == 0, "%d recorded, %d files, %d wait, %v", len(all), len(files), d.Waiting(), err)
	})
	return all
}

func TestCrashesWaitForSessionAndAreWrittenOnce(t *testing.T) {
	d := newDesk(t, t.TempDir())
	for n := range 3 {
		d.Record(crashed(n))
		d.Record(crashed(n))
	}
	if d.Waiting() != 3 {
		t.Errorf("%d wait", d.Waiting())
	}
	d.join()
	before := d.recorded(3)
	d.Record(crashed(1)) // as an agent that died before it noted the record
	for n, c := range d.recorded(3) {
		if c.ModRev != before[n].ModRev {
			t.Errorf("%s was written again", c.ID)
		}
	}
}

func TestCrashesOfEarlierAgentAreWritten(t *testing.T) {
	dir := t.TempDir()
	first := newDesk(t, dir)
	first.Record(crashed(1))
	for name, content := range map[string]string{"bbbbbb-1-1.json": "{", "cccccc-1-1.json.tmp": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	second := newDesk(t, dir)
	second.join()
	if all := second.recorded(1); all[0].ID != "aaaaaa-1-1" {
		t.Errorf("%+v", all)
	}
}

func TestWaitingCrashesAreBounded(t *testing.T) {
	d := newDesk(t, t.TempDir())
	for n := range recorder.MaxWaiting + 5 {
		d.Record(crashed(n))
	}
	d.join()
	for _, c := range d.recorded(recorder.MaxWaiting) {
		if c.At.Unix() < 5 {
			t.Errorf("%s made no room", c.ID)
		}
	}
}

func TestTooLargeCrashIsWrittenWithoutOutput(t *testing.T) {
	d := newDesk(t, t.TempDir())
	bad, tail := crashed(0)
	tail.Text = make([]byte, 4<<20) // more than the store accepts
	d.Record(bad, tail)
	for n := 1; n < 4; n++ {
		d.Record(crashed(n))
	}
	d.join()
	d.recorded(4)
	kept, err := store.Get(t.Context(), d.store, keys.CrashTail(bad.ID))
	if err != nil || len(kept.Text) > 0 {
		t.Errorf("its output has %d bytes, %v", len(kept.Text), err)
	}
}
