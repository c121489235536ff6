package templatesvc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/client"
)

func TestACopyOfADirectoryRemovesNothingThatItNeverHad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/a")
	_, stop := w.start("a")
	copied := &world{t: t, c: w.c, dir: t.TempDir(), blobs: w.blobs}
	if err := os.CopyFS(copied.dir, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	drop(t, w.dir, "g/later")
	w.settles("g/a g/later")
	stop()
	copied.start("b") // alone and without stored memory
	copied.directory("b", content.SourceHeld, "kept: 1 of 2 templates")
	w.has("g/a g/later")
	copied.confirm(copied.directory("b", content.SourceHeld, "").Held)
	w.settles("g/a")
}

func TestADirectoryRemovesNothingOfACopyThatHasToldNothingYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/a")
	w.start("a")
	id := w.directory("a", content.SourceInSync, "").ID
	// Another replica with a copy of the directory is alive and has just published this.
	theirs := content.TemplateHead{TemplateRef: content.TemplateRef{Group: "g", Name: "theirs"}, Digest: "1", SourceDigest: "1", Origin: content.DirectoryOrigin, Directory: id}
	if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{
		store.Create(keys.Session("templatesvc", "b"), cluster.Session{Service: "templatesvc", Replica: "b"}),
		store.Create(keys.TemplateHead(theirs.TemplateRef), theirs),
	}}); err != nil {
		t.Fatal(err)
	}
	w.confirm("")
	w.directory("a", content.SourceHeld, "kept: 1 of 2 templates")
	w.has("g/a g/theirs")
}

func TestAStartForgetsNoRemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ahead = -12 * time.Hour // the clock of the first run is wrong
	drop(t, w.dir, "g/a", "g/b", "g/c", "g/d", "g/e", "g/f")
	_, stop := w.start("a")
	gone := func(name string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(w.dir, "g", name)); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"a", "b", "c", "d"} { // each alone, and together four of six
		gone(name)
		w.settles(strings.Join([]string{"g/a", "g/b", "g/c", "g/d", "g/e", "g/f"}[i+1:], " "))
	}
	stop()
	gone("e")
	w.ahead = 0
	_, stop = w.start("a")
	w.directory("a", content.SourceHeld, "held: 1 of 2 templates would be removed (g/e)")
	w.has("g/e g/f")
	stop()
	w.start("a") // what is held stays held
	w.confirm("")
	w.other(t, "later")
	w.confirm(w.directory("a", content.SourceHeld, "held: 1 of 3 templates would be removed (g/e)").Held)
	w.settles("g/f other/later")
}

// forgets waits until the directory memory of a replica that is away is deleted.
func (w *world) forgets(replica string) {
	w.t.Helper()
	await.That(w.t, "nobody tells of the directory of "+replica, func() string {
		_, err := store.Get(w.t.Context(), w.c, keys.TemplateDirectory(replica))
		return await.Unless(errs.Is(err, errs.NotFound), "%v", err)
	})
}

func TestWhatADirectoryHeldIsKnownAfterAStartBesideAnotherReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/a", "g/b", "g/c")
	_, stop := w.start("a")
	w.directory("a", content.SourceInSync, "")
	other := &world{t: t, c: w.c, dir: t.TempDir(), blobs: t.TempDir()}
	drop(t, other.dir, "g/theirs")
	b, _ := other.start("b")
	stop()
	w.confirm("") // b looks and finds that a is away
	w.forgets("a")
	err := clientOf(b).DeleteTemplate(t.Context(), content.TemplateRef{Group: "g", Name: "a"}, client.Asked{Author: "ada"})
	if !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "remove g/a there") {
		t.Errorf("deleted while the replica that has it is away: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(w.dir, "g", "b")); err != nil {
		t.Fatal(err)
	}
	w.start("a")
	w.settles("g/a g/c g/theirs")
}

func TestAStartUnderAnotherNameForgetsNoDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/a", "g/b", "g/c", "g/d", "g/e", "g/f")
	gone := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.RemoveAll(filepath.Join(w.dir, "g", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.ahead = -12 * time.Hour // the clocks of the first runs are wrong
	_, stop := w.start("a-1")
	w.directory("a-1", content.SourceInSync, "")
	stop()
	gone("a", "b", "c", "d")
	_, stop = w.start("a-2")
	w.settles("g/e g/f")
	w.directory("a-2", content.SourceInSync, "")
	stop()
	w.ahead = 0
	gone("e") // with the earlier ones, most of what there was
	w.start("a-3")
	w.directory("a-3", content.SourceHeld, "held: 1 of 2 templates would be removed (g/e)")
	n, err := store.Count(t.Context(), w.c, keys.DirectoryMemories())
	if err != nil || n != 1 {
		t.Errorf("%d names of one directory are remembered, %v", n, err)
	}
}
