package directory

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// watched is a directory with synthetic notifications.
type watched struct {
	*Directory
	t       *testing.T
	watcher *fsnotify.Watcher
	since   time.Time
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watcher.Close() })
	return &watched{t: t, watcher: watcher, since: time.Now(), Directory: &Directory{
		cfg: Config{Dir: t.TempDir(), Quiet: DefaultQuiet}, scanner: scanner{seen: map[string]hashed{}}, dirty: map[content.TemplateRef]*changed{}, met: map[content.TemplateRef]bool{},
	}}
}

func (w *watched) tell(what fsnotify.Op, name string, after time.Duration) {
	w.note(w.watcher.Add, fsnotify.Event{Op: what, Name: filepath.Join(w.cfg.Dir, "g", "t", name)}, w.since.Add(after))
}

// reads checks when the template is due.
func (w *watched) reads(after time.Duration) {
	w.t.Helper()
	if !w.waits(ref, w.since.Add(after-time.Millisecond)) || w.waits(ref, w.since.Add(after)) {
		w.t.Errorf("it is due %s after the first change, not %s", w.dirty[ref].due(w.cfg.Quiet).Sub(w.since), after)
	}
}

func TestATreeThatIsCopiedInIsReadOnceItIsWhole(t *testing.T) {
	w, last := newWatched(t), time.Duration(0)
	for i := range 12 {
		last = time.Duration(i) * 2500 * time.Millisecond
		if i > 0 && !w.waits(ref, w.since.Add(last)) {
			t.Fatalf("it is read with %d of 12 files", i)
		}
		w.tell(fsnotify.Create, string(rune('a'+i)), last)
		w.tell(fsnotify.Write, string(rune('a'+i)), last)
	}
	w.reads(last + 3*time.Second)
}

func TestAFileThatIsKnownIsPublishedSoonerThanWhatIsNew(t *testing.T) {
	for _, op := range []fsnotify.Op{fsnotify.Write, fsnotify.Create, fsnotify.Chmod, fsnotify.Remove} {
		w := newWatched(t)
		w.scanner.seen[filepath.Join(w.cfg.Dir, "g", "t", "f")] = hashed{}
		w.tell(op, "f", 0)
		w.reads(time.Second)
	}
}

func TestWhatChangesForEverIsReadAfterAMinute(t *testing.T) {
	w := newWatched(t)
	for after := range 300 {
		w.tell(fsnotify.Create, "f", time.Duration(after)*200*time.Millisecond)
	}
	w.reads(time.Minute)
	if c := w.dirty[ref]; c.impatient(w.cfg.Quiet, w.since.Add(time.Minute)) == "" || c.impatient(w.cfg.Quiet, w.since.Add(time.Hour)) != "" {
		t.Error("what is read in the middle of its changes says so, and nothing else does")
	}
}

func TestADirectoryThatCannotBeReadIsNotLookedAtWithoutPause(t *testing.T) {
	w := newWatched(t)
	w.cfg.Log, w.complained = slog.New(slog.DiscardHandler), map[string]string{}
	w.tell(fsnotify.Create, "f", 0)
	if err := os.Remove(w.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	due := w.since.Add(time.Minute)
	w.publishDue(t.Context(), due)
	if wait := w.nextDue(due); wait != again {
		t.Errorf("it is looked at again in %s", wait)
	}
}
