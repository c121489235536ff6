package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/scheduler"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/answer"
	"github.com/orreryhq/orrery/scheduler/internal/controller"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

const secret = "0123456789abcdef0123456789abcdef"

// past keeps every snapshot that a view has had.
type past struct {
	mu sync.Mutex
	by map[int64]*view.Snapshot
}

func (p *past) hear(b view.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.by[b.After.Rev] = b.After
}

func (p *past) at(t *testing.T, rev int64) *view.Snapshot {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.by[rev]
	if !ok {
		t.Fatalf("the scheduler never saw revision %d", rev)
	}
	return s
}

// answering starts a scheduler that answers questions, and returns a client for it.
func (w *world) answering() (*client.Client, *past) {
	w.t.Helper()
	v, seen := view.New(w.c, nil, controller.Kinds()...), &past{by: map[int64]*view.Snapshot{}}
	v.Subscribe(seen.hear)
	s, err := scheduler.New(scheduler.Config{Store: w.c, View: v, Replica: "a", Log: slog.New(slog.DiscardHandler), Peers: trust.BySecret(secret)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.run(v.Run)
	w.run(s.Run)
	url := ""
	await.That(w.t, "where the scheduler can be asked", func() string {
		if at, ok := w.view.Snapshot().Sessions.Get("scheduler/a"); ok {
			url = at.URL
		}
		return await.Unless(url != "", "no session")
	})
	transport := &http.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	return client.New(&http.Client{Transport: transport}, url, secret), seen
}

// crowd creates a small fleet with different kinds of capacity, partly in use.
func (w *world) crowd() {
	w.t.Helper()
	for n, memory := range []int{400, 300, 300, 120, 50} {
		w.node(fleet.NodeID(fmt.Sprintf("n%d", n+1)), memory)
	}
	for _, id := range w.want(w.group("taken", func(s *fleet.GroupSpec) { s.Resources.MemoryMiB = 60 }), 4) {
		w.await(id, "placed", placed)
	}
}

func TestAWaitingInstancesExplanationIsTheDecisionRecomputedFromItsRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, seen := w.answering()
	w.crowd()
	big := w.group("big", func(s *fleet.GroupSpec) {
		s.Resources.MemoryMiB = 350
		s.Where.Nodes = []fleet.NodeID{"n1", "n2", "n3", "n4"}
	})
	ids := w.want(big, 3)
	for _, id := range ids {
		note := w.await(id, "waiting", waiting(fleet.ReasonNoNodeFits)).Pending
		moment := controller.MomentOf(seen.at(t, note.FromRevision), time.Now())
		again, err := answer.Explain(moment, id)
		if err != nil {
			t.Fatal(err)
		}
		stored := client.Explanation{
			Revision: note.FromRevision, Instance: id, Generation: note.Generation, Nodes: note.Nodes, Lost: note.Lost,
			Unfit: &client.Unfit{Reason: note.Reason, Message: note.Message},
		}
		if diff := cmp.Diff(stored, again); diff != "" {
			t.Errorf("stored and recomputed differ:\n%s", diff)
		}
		live, err := ask.Explain(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		live.Revision = stored.Revision
		if diff := cmp.Diff(stored, live); diff != "" {
			t.Errorf("stored and asked differ:\n%s", diff)
		}
	}
}

func TestAPlacedInstanceIsExplainedByTheDecisionForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	w.crowd()
	id := w.want(w.group("lobby", nil), 1)[0]
	p := w.await(id, "placed", placed).Placement
	e, err := ask.Explain(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if e.Unfit != nil || e.Nodes != 5 || len(e.Best) != 5 || e.Here == nil || e.Here.Rank != 1 || e.Here.Node != p.Node {
		t.Fatalf("%+v", e)
	}
	if diff := cmp.Diff(p.Score.Parts(), e.Here.Score); diff != "" {
		t.Errorf("the score is another than when it was placed, though nothing changed:\n%s", diff)
	}
	if e.Best[0].Node != p.Node || e.Best[1].Score["total"] > e.Best[0].Score["total"] {
		t.Errorf("best %+v", e.Best)
	}
}

// simulate asks at the store's latest revision.
func (w *world) simulate(ask *client.Client, q client.Question) (out client.Simulation) {
	w.t.Helper()
	await.That(w.t, "an answer of the latest revision", func() string {
		at := w.view.Snapshot().Rev
		var err error
		if out, err = ask.Simulate(w.t.Context(), q, at); err != nil {
			w.t.Fatal(err)
		}
		return await.Unless(out.Revision == w.view.Snapshot().Rev, "%d, asked at %d", out.Revision, at)
	})
	return out
}

func TestWhatIsSimulatedIsWhatIsPlacedAtThatRevision(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fleet.GroupSpec){
		"a plain group":        func(*fleet.GroupSpec) {},
		"a group that spreads": func(s *fleet.GroupSpec) { s.Where.Spread = "zone" },
		"a group with more ports": func(s *fleet.GroupSpec) {
			s.AdditionalPorts = []fleet.NamedPort{{Name: "query", Range: fleet.PortRange{Start: 31000, End: 31003}}}
		},
		"a group that is too much": func(s *fleet.GroupSpec) { s.Resources.MemoryMiB = 90 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			ask, _ := w.answering()
			w.crowd()
			g := w.group("lobby", change)
			const count = 40
			told := w.simulate(ask, client.Question{Place: &client.PlaceQuestion{Group: "lobby", Count: count}})
			byName := map[string]client.Outcome{}
			for _, o := range told.Instances {
				byName[o.Name] = o
			}
			if len(byName) != count || told.Placed+told.Pending != count {
				t.Fatalf("%d outcomes, %d placed, %d pending", len(byName), told.Placed, told.Pending)
			}
			for _, id := range w.want(g, count) {
				i := w.await(id, "decided", func(i *fleet.Instance) bool { return placed(i) || i.Pending != nil })
				o := byName[i.Intent.Name]
				if !placed(i) {
					if o.Effect != client.EffectPending || o.Reason != i.Pending.Reason {
						t.Errorf("%s waits (%s), simulated %+v", i.Intent.Name, i.Pending.Reason, o)
					}
					continue
				}
				p := i.Placement
				real := client.Outcome{Name: p.Name, Group: p.Group, Effect: client.EffectPlaced, Node: p.Node, Port: p.Port, Ports: p.Ports, Score: p.Score.Parts()}
				if diff := cmp.Diff(o, real); diff != "" {
					t.Errorf("simulated and real differ:\n%s", diff)
				}
			}
		})
	}
}

func TestAQuestionThatCannotBeAnsweredSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask, _ := w.answering()
	for name, c := range map[string]struct {
		q    client.Question
		kind errs.Kind
	}{
		"nothing":          {client.Question{}, errs.Invalid},
		"two at once":      {client.Question{Drain: &client.DrainQuestion{Node: "n"}, Lose: &client.NodeQuestion{Node: "n"}}, errs.Invalid},
		"none of a group":  {client.Question{Place: &client.PlaceQuestion{Group: "g"}}, errs.Invalid},
		"too many":         {client.Question{Place: &client.PlaceQuestion{Group: "g", Count: client.MaxPlace + 1}}, errs.Invalid},
		"no group's name":  {client.Question{Place: &client.PlaceQuestion{Count: 1}}, errs.Invalid},
		"no node's name":   {client.Question{Drain: &client.DrainQuestion{}}, errs.Invalid},
		"an unknown group": {client.Question{Place: &client.PlaceQuestion{Group: "g", Count: 1}}, errs.NotFound},
		"an unknown node":  {client.Question{Lose: &client.NodeQuestion{Node: "n"}}, errs.NotFound},
	} {
		if _, err := ask.Simulate(t.Context(), c.q, 0); !errs.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
	}
	if _, err := ask.Explain(t.Context(), "zzzzzz", 0); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown instance: %v", err)
	}
	w.node("n1", 100)
	i := w.await(w.want(w.group("g", nil), 1)[0], "placed", placed)
	w.finish(i)
	if _, err := ask.Explain(t.Context(), i.Intent.ID, w.view.Snapshot().Rev); !errs.Is(err, errs.Conflict) {
		t.Errorf("one that has ended: %v", err)
	}
}

func TestNobodyAsksWithoutTheSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.answering()
	at, _ := w.view.Snapshot().Sessions.Get("scheduler/a")
	transport := &http.Transport{DisableKeepAlives: true}
	stranger := client.New(&http.Client{Transport: transport}, at.URL, "something else")
	if _, err := stranger.Explain(t.Context(), "aaaaaa", 0); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("%v", err)
	}
}

func TestAnAskerDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := view.New(w.c, nil, controller.Kinds()...)
	ctl := controller.New(controller.Config{Store: w.c, View: v, Owned: func() *store.Ownership { return nil }, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := ctl.Ask(ctx); !errs.Is(err, errs.Unavailable) {
		t.Errorf("nobody runs: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := ctl.Ask(gone); !errs.Is(err, errs.Canceled) {
		t.Errorf("nobody waits: %v", err)
	}
}

func TestEachAskerGetsACopyOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := view.New(w.c, nil, controller.Kinds()...)
	ctl := controller.New(controller.Config{Store: w.c, View: v, Owned: func() *store.Ownership { return nil }, Log: slog.New(slog.DiscardHandler)})
	w.run(v.Run)
	w.run(ctl.Run)
	w.node("n1", 25)
	plan := &fleet.Plan{Runtime: fleet.RuntimeProcess, Resources: fleet.Resources{MemoryMiB: 10}}
	var asking sync.WaitGroup
	for range 30 {
		asking.Go(func() {
			for {
				m, err := ctl.Ask(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if _, alive := m.Snap.NodeSessions.Get("n1"); !alive {
					continue
				}
				for n := range 3 {
					_, unfit := m.Model.Place(&place.Request{Group: "g", Plan: plan})
					if full := unfit != nil; full != (n == 2) {
						t.Errorf("instance %d: full is %v", n, full)
					}
				}
				return
			}
		})
	}
	asking.Wait()
}
