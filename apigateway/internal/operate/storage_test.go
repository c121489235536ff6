package operate_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

// An operation reads its clock after it has checked what it needs and before it commits. These
// tests use the clock to let another operation through at this moment.

// storageSite has operations whose clock calls meanwhile once, and others beside them.
type storageSite struct {
	store                     *store.Client
	slow, quick               *operate.Operations
	slowSources, quickSources *operate.Sources
	meanwhile                 func()
	by                        operate.Actor
}

func newStorageSite(t *testing.T) *storageSite {
	c := storetest.Start(t).Client(t)
	v := view.New(c, nil)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = v.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	s := &storageSite{store: c, by: operate.Actor{User: "admin"}}
	secret := strings.Repeat("s", 32)
	config := func(now func() time.Time) operate.Config {
		return operate.Config{Store: c, View: v, Log: slog.New(slog.DiscardHandler), Now: now}
	}
	s.quick = operate.New(config(time.Now))
	s.slow = operate.New(config(func() time.Time {
		if f := s.meanwhile; f != nil {
			s.meanwhile = nil
			f()
		}
		return time.Now()
	}))
	var err error
	if s.quickSources, err = operate.NewSources(s.quick, secret); err != nil {
		t.Fatal(err)
	}
	if s.slowSources, err = operate.NewSources(s.slow, secret); err != nil {
		t.Fatal(err)
	}
	source := fleet.TemplateSource{Name: "web", Kind: fleet.SourceHTTP, URL: "https://host/a.zip", Template: fleet.TemplateRef{Group: "g", Name: "t"}}
	head := fleet.TemplateHead{TemplateRef: fleet.TemplateRef{Group: "g", Name: "t"}, Origin: "web"}
	rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{
		store.Create(store.TemplateSourceKey("web"), source), store.Create(store.TemplateHeadKey(head.TemplateRef), head),
	}})
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the view", func() string { return await.Unless(v.Snapshot().Rev >= rev, "it is behind") })
	return s
}

// lobby writes a group with a template whose storage is the source web.
func (s *storageSite) lobby(ctx context.Context, o *operate.Operations) error {
	_, err := o.WriteGroup(ctx, s.by, operate.GroupWrite{
		Name: "lobby",
		Make: func(*fleet.GroupSpec) (fleet.GroupSpec, error) {
			spec := fleet.DefaultSpec()
			spec.Command = "run"
			spec.Templates.AllOf = []fleet.TemplateLayer{{TemplateRef: fleet.TemplateRef{Group: "g", Name: "t"}, Storage: "web"}}
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
	if _, err := store.Get(t.Context(), s.store, store.GroupKey("lobby")); !errs.Is(err, errs.NotFound) {
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
	if _, err := store.Get(t.Context(), s.store, store.TemplateSourceKey("web")); err != nil {
		t.Errorf("the source: %v", err)
	}
}
