package versions_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

func TestWhatADirectoryHeldIsForgottenAWeekAfterItsReplicaLeft(t *testing.T) {
	w := newWorld(t)
	head := content.TemplateHead{TemplateRef: ref, Digest: "1", SourceDigest: "1", Origin: content.DirectoryOrigin, Directory: "x"}
	session := keys.Session("templatesvc", "b")
	rev, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{
		store.Create(keys.TemplateHead(ref), head),
		store.Create(session, cluster.Session{Service: "templatesvc", Replica: "b"}),
		store.Create(keys.DirectoryMemory("x", "b"), content.DirectoryMemory{ID: "x", Replica: "b", Templates: []string{ref.String()}}),
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
	pass(2 * versions.DirectoryLife) // the replica is alive
	refused("remove g/t there, and it goes")
	if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Remove(session, rev)}}); err != nil {
		t.Fatal(err)
	}
	pass(0)
	pass(versions.DirectoryLife - time.Minute)
	refused("remove g/t there, or wait")
	pass(time.Minute)
	if err := w.Delete(t.Context(), ref, me); err != nil {
		t.Errorf("a week after its directory was last served: %v", err)
	}
}
