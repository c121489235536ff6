package ops_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

// An operation reads its clock after its checks and before its commit. These tests use the clock to run
// another operation at this moment.

// storageSite has operations whose clock calls meanwhile once, and others with a normal clock.
type storageSite struct {
	store                     *store.Client
	slow, quick               *ops.Operations
	slowSources, quickSources *sourceops.Sources
	meanwhile                 func()
	by                        txn.Actor
}

func newStorageSite(t *testing.T) *storageSite {
	c := storetest.Start(t).Client(t)
	v := view.New(c, nil)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = v.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	s := &storageSite{store: c, by: txn.Actor{User: "admin"}}
	secret := strings.Repeat("s", 32)
	config := func(now func() time.Time) ops.Config {
		return ops.Config{Store: c, View: v, Seal: seal.Only(secret), Log: slog.New(slog.DiscardHandler), Now: now}
	}
	s.quick = ops.New(config(time.Now))
	s.slow = ops.New(config(func() time.Time {
		if f := s.meanwhile; f != nil {
			s.meanwhile = nil
			f()
		}
		return time.Now()
	}))
	s.quickSources = sourceops.New(s.quick.Committer, seal.Only(secret))
	s.slowSources = sourceops.New(s.slow.Committer, seal.Only(secret))
	source := content.TemplateSource{Name: "web", Kind: content.SourceHTTP, URL: "https://host/a.zip", Template: content.TemplateRef{Group: "g", Name: "t"}}
	head := content.TemplateHead{TemplateRef: content.TemplateRef{Group: "g", Name: "t"}, Origin: "web"}
	rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{
		store.Create(keys.TemplateSource("web"), source), store.Create(keys.TemplateHead(head.TemplateRef), head),
	}})
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the view", func() string { return await.Unless(v.Snapshot().Rev >= rev, "it is behind") })
	return s
}

// lobby writes a group with a template whose storage is the source web.
func (s *storageSite) lobby(ctx context.Context, o *ops.Operations) error {
	_, err := o.WriteGroup(ctx, s.by, groupops.GroupWrite{
		Name: "lobby",
		Make: func(*fleet.GroupSpec) (fleet.GroupSpec, error) {
			spec := fleet.DefaultSpec()
			spec.Command = "run"
			spec.Templates.AllOf = []content.TemplateLayer{{TemplateRef: content.TemplateRef{Group: "g", Name: "t"}, Storage: "web"}}
			return spec, nil
		},
	})
	return err
}

func TestAGroupIsRefusedWhenItsStorageIsDeletedMeanwhile(t *testing.T) {
	s := newStorageSite(t)
	deleted := false
	s.meanwhile = func() {
		if err := s.quickSources.Delete(t.Context(), s.by, "web", 0, false); err != nil {
			t.Error(err)
		}
		deleted = true
	}
	if err := s.lobby(t.Context(), s.slow); !deleted || !errs.Is(err, errs.Invalid) || !strings.Contains(errs.FieldOf(err), "allOf[0].storage") {
		t.Errorf("deleted %v: %v, field %q", deleted, err, errs.FieldOf(err))
	}
	if _, err := store.Get(t.Context(), s.store, keys.Group("lobby")); !errs.Is(err, errs.NotFound) {
		t.Errorf("the group: %v", err)
	}
}

func TestASourceStaysWhenAGroupNamesItMeanwhile(t *testing.T) {
	s := newStorageSite(t)
	written := false
	s.meanwhile = func() {
		if err := s.lobby(t.Context(), s.quick); err != nil {
			t.Error(err)
		}
		written = true
	}
	err := s.slowSources.Delete(t.Context(), s.by, "web", 0, false)
	if !written || !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "storage of templates of lobby") {
		t.Errorf("written %v: %v", written, err)
	}
	if _, err := store.Get(t.Context(), s.store, keys.TemplateSource("web")); err != nil {
		t.Errorf("the source: %v", err)
	}
}
