package gitops_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/api/catalog"
	"github.com/orreryhq/orrery/apigateway/internal/api/groups"
	"github.com/orreryhq/orrery/apigateway/internal/background/gitops"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

// world is an applier that starts after some records were written and runs only on changes.
type world struct {
	*testing.T
	c *store.Client
}

func newWorld(t *testing.T, before ...store.Write) *world {
	t.Helper()
	w := &world{t, storetest.Start(t).Client(t)}
	log := slog.New(slog.DiscardHandler)
	v := view.New(w.c, log)
	a := gitops.New(gitops.Config{
		Store: w.c, Operations: ops.New(ops.Config{Store: w.c, View: v, Log: log, Now: time.Now}),
		ReadGroup: groups.DecodePut, ReadVersion: catalog.DecodeVersion, Every: time.Hour, Log: log,
	})
	v.Subscribe(a.OnBatch)
	rev := w.commit(append(before, store.Create(keys.TemplateSource("repo"), content.TemplateSource{Name: "repo", Kind: content.SourceGit, Declares: true}))...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{}, 2)
	go func() { _ = v.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-ended })
	if _, err := v.WaitRev(ctx, rev); err != nil {
		t.Fatal(err)
	}
	go func() { a.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

func (w *world) commit(writes ...store.Write) int64 {
	w.Helper()
	rev, err := w.c.Commit(w.Context(), store.Txn{Writes: writes})
	if err != nil {
		w.Fatal(err)
	}
	return rev
}

// version returns the write that declares a version of PAPER, or its removal after rev.
func version(removed bool, rev int64) store.Write {
	d := compose.DeclaredCatalog{Platform: "PAPER", Version: "1", Declaration: compose.Declaration{Source: "repo", File: "catalog.yaml", Commit: "one", Removed: removed}}
	if !removed {
		d.Spec = json.RawMessage(`{"downloadUrl":"https://host/1","sha256":"abababababababababababababababababababababababababababababababab","category":"server"}`)
	}
	return store.Replace(keys.DeclaredCatalogEntry("repo", "PAPER/1"), d, rev)
}

// paper returns a group that runs it.
func paper() fleet.Group {
	g := fleet.Group{Name: "paper", Spec: fleet.DefaultSpec()}
	g.Spec.Software = fleet.Software{Platform: "PAPER", PlatformVersion: "1", JarFile: "server.jar"}
	return g
}

// versionIs waits until the status of the declared version at a revision is want.
func (w *world) versionIs(want compose.DeclaredState, rev int64) {
	w.Helper()
	await.That(w, "the version "+string(want), func() string {
		st, err := store.Get(w.Context(), w.c, keys.DeclaredCatalogStatus("repo", "PAPER/1"))
		return await.Unless(err == nil && st.State == want && st.Observed == rev, "%+v, %v", st, err)
	})
}

func TestARemovalIsForgottenAsSoonAsItsSourceIsFurther(t *testing.T) {
	w := newWorld(t)
	removed := w.commit(version(true, 0))
	w.versionIs(compose.DeclaredRemoved, removed)
	st := content.SourceStatus{Name: "repo", State: content.SourceInSync, Revision: "one"}
	rev := w.commit(store.Create(keys.TemplateSourceStatus("repo"), st))
	w.versionIs(compose.DeclaredRemoved, w.commit(version(true, removed))) // all that has changed until now was looked at
	st.Revision = "two"
	w.commit(store.Replace(keys.TemplateSourceStatus("repo"), st, rev))
	await.That(t, "its record goes", func() string {
		_, err := store.Get(t.Context(), w.c, keys.DeclaredCatalogEntry("repo", "PAPER/1"))
		return await.Unless(errs.Is(err, errs.NotFound), "%v", err)
	})
}

// failures counts catalog statuses with FAILED.
type failures struct {
	told atomic.Int64
	last atomic.Bool // the test's own record was heard
}

// Reset implements store.Handler.
func (f *failures) Reset(kvs []store.KeyValue, _ int64) {
	for _, kv := range kvs {
		f.note(kv)
	}
}

// Apply implements store.Handler.
func (f *failures) Apply(changes []store.Change, _ int64) {
	for _, c := range changes {
		f.note(c.KeyValue)
	}
}

func (f *failures) note(kv store.KeyValue) {
	st, err := store.Decode[compose.DeclaredStatus](kv)
	switch {
	case err != nil:
	case st.Catalog == "last":
		f.last.Store(true)
	case st.State == compose.DeclaredFailed:
		f.told.Add(1)
	}
}

func TestWhatAGroupRunsGoesWithIt(t *testing.T) {
	runs := paper()
	runs.ManagedBy = "repo"
	w := newWorld(t, store.Create(keys.Group("paper"), runs), store.Create(keys.CatalogPlatform("PAPER"), content.CatalogPlatform{
		Platform: "PAPER", Versions: []content.CatalogVersion{{Version: "1", ManagedBy: "repo"}},
	}), version(true, 0), store.Create(keys.DeclaredGroup("repo", "paper"), compose.DeclaredGroup{
		Group: "paper", Declaration: compose.Declaration{Source: "repo", Removed: true},
	}))
	heard := new(failures)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.c.Follow(ctx, keys.DeclaredCatalogStatuses().String(), heard) }()
	t.Cleanup(func() { cancel(); <-ended })
	d, err := store.Get(t.Context(), w.c, keys.DeclaredCatalogEntry("repo", "PAPER/1"))
	if err != nil {
		t.Fatal(err)
	}
	w.versionIs(compose.DeclaredRemoved, d.ModRev)
	w.commit(store.Create(keys.DeclaredCatalogStatus("none", "last"), compose.DeclaredStatus{Source: "none", Catalog: "last"}))
	await.That(t, "all was heard", func() string { return await.Unless(heard.last.Load(), "not yet") })
	if n := heard.told.Load(); n != 0 {
		t.Errorf("told %d times that it cannot go", n)
	}
}

func TestWhatARunningGroupHeldUpGoesOnceItDoes(t *testing.T) {
	w := newWorld(t, store.Create(keys.Group("paper"), paper()))
	made := w.commit(version(false, 0))
	w.versionIs(compose.DeclaredInSync, made)
	removed := w.commit(version(true, made))
	w.versionIs(compose.DeclaredFailed, removed)
	g, err := store.Get(t.Context(), w.c, keys.Group("paper"))
	if err != nil {
		t.Fatal(err)
	}
	w.commit(store.Remove(keys.Group("paper"), g.ModRev))
	w.versionIs(compose.DeclaredRemoved, removed)
}
