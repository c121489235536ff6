package template_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

func TestWhatADirectoryHeldIsForgottenAWeekAfterItsReplicaLeft(t *testing.T) {
	w := newWorld(t)
	head := fleet.TemplateHead{TemplateRef: ref, Digest: "1", SourceDigest: "1", Origin: fleet.DirectoryOrigin, Directory: "x"}
	session := store.SessionKey("templatesvc", "b")
	rev, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{
		store.Create(store.TemplateHeadKey(ref), head),
		store.Create(session, fleet.Session{Service: "templatesvc", Replica: "b"}),
		store.Create(store.DirectoryMemoryKey("x", "b"), fleet.DirectoryMemory{ID: "x", Replica: "b", Templates: []string{ref.String()}}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	pass := func(by time.Duration) {
		t.Helper()
		w.mu.Lock()
		w.clock = w.clock.Add(by)
		w.mu.Unlock()
		if err := w.ForgetDirectories(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if err := w.Delete(t.Context(), ref, me); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), want) {
			t.Errorf("deleted: %v", err)
		}
	}
	pass(2 * template.DirectoryLife) // it lives
	refused("remove g/t there, and it goes")
	if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Remove(session, rev)}}); err != nil {
		t.Fatal(err)
	}
	pass(0)
	pass(template.DirectoryLife - time.Minute)
	refused("remove g/t there, or wait")
	pass(time.Minute)
	if err := w.Delete(t.Context(), ref, me); err != nil {
		t.Errorf("a week after its directory was last served: %v", err)
	}
}
