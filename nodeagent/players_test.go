package nodeagent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// steve and alex are players.
const (
	steve players.PlayerID = "069a79f4-44e9-4726-a5be-fca90e38aaf5"
	alex  players.PlayerID = "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6"
)

// stored are the players in the store, "<name>@<instance>".
func (s *site) stored() []string {
	s.t.Helper()
	parts, _, err := store.List(s.t.Context(), s.store, keys.PlayersOn(node))
	if err != nil {
		s.t.Fatal(err)
	}
	found := map[string]bool{}
	for _, part := range parts {
		for _, p := range part.Players {
			found[p.Name+"@"+string(p.By)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func TestMeasuredIsKnownUntilRunEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	s.online(id, basic("sleep 1000"))
	if m, err := s.api().Measured(t.Context(), id); !errs.Is(err, errs.NotFound) {
		t.Errorf("nothing was told: %+v, %v", m, err)
	}
	tell := func(figures string) error {
		return s.api().Heartbeat(t.Context(), id, client.Heartbeat{TPS: new(19.5), Measured: &client.Measured{Figures: []byte(figures)}})
	}
	if err := tell(`{"tps1m":19.5}`); err != nil {
		t.Fatal(err)
	}
	if err := tell(`"` + strings.Repeat("x", 64<<10) + `"`); !errs.Is(err, errs.Invalid) {
		t.Errorf("too much: %v", err)
	}
	if m, err := s.api().Measured(t.Context(), id); err != nil || string(m.Figures) != `{"tps1m":19.5}` || m.At.IsZero() || m.Proxy {
		t.Errorf("%+v, %v", m, err)
	}
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
	if m, err := s.api().Measured(t.Context(), id); !errs.Is(err, errs.NotFound) {
		t.Errorf("it ended: %+v, %v", m, err)
	}
}

func (s *site) awaitPlayers(want ...string) {
	s.t.Helper()
	await.That(s.t, fmt.Sprintf("the players %v are in the store", want), func() string {
		got := s.stored()
		return await.Unless(slices.Equal(got, want), "they are %v", got)
	})
}

func TestPlayersAreStoredUntilRunEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	s.online(id, basic("sleep 1000"))
	joined := func(p players.PlayerID, name string, sequence int64) error {
		return s.api().Heartbeat(t.Context(), id, client.Heartbeat{Sequence: sequence, Joined: &players.Presence{Player: p, Name: name}})
	}
	for n, err := range []error{joined(steve, "Steve", 1), joined(alex, "Alex", 2), joined(steve, "Steve", 3)} {
		if err != nil {
			t.Fatal(n, err)
		}
	}
	if err := joined("nobody", "x", 4); !errs.Is(err, errs.Invalid) {
		t.Errorf("no UUID: %v", err)
	}
	if err := joined(alex, "Other", 3); !errs.Is(err, errs.AlreadyExists) {
		t.Errorf("a number again: %v", err)
	}
	if err := s.api().Heartbeat(t.Context(), id, client.Heartbeat{Sequence: 4, Players: new(17)}); err != nil {
		t.Fatal(err)
	}
	if i, err := s.api().Instance(t.Context(), id); err != nil || i.Players != 2 || !i.PlayersKnown {
		t.Errorf("its number of players: %+v, %v", i, err)
	}
	s.awaitPlayers("Alex@"+string(id), "Steve@"+string(id))

	s.stop()
	s.start(taking)
	await.That(t, "the next agent knows them", func() string {
		i, err := s.api().Instance(t.Context(), id)
		return await.Unless(err == nil && i.Players == 2, "%+v, %v", i, err)
	})
	if err := s.api().Heartbeat(t.Context(), id, client.Heartbeat{Sequence: 5, Left: steve}); err != nil {
		t.Fatal(err)
	}
	s.awaitPlayers("Alex@" + string(id))
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
	s.awaitPlayers()
}

func TestPlayerMoveRewritesOnlyParts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id, n := s.id(1), 2
	for s.id(n).Part() == id.Part() {
		n++
	}
	other := s.id(n) // its figures are in another part, and stay
	s.online(id, basic("sleep 1000"))
	s.online(other, basic("sleep 1000"))
	tell := func(id fleet.InstanceID, h client.Heartbeat) {
		t.Helper()
		if err := s.api().Heartbeat(t.Context(), id, h); err != nil {
			t.Fatal(err)
		}
	}
	tell(other, client.Heartbeat{Sequence: 1, Players: new(3)})
	tell(id, client.Heartbeat{Sequence: 1, Joined: &players.Presence{Player: steve, Name: "Steve"}})
	s.awaitPlayers("Steve@" + string(id))
	await.That(t, "the figures of the other instance", func() string {
		f, _, err := s.figures(other)
		return await.Unless(f.Players == 3, "%+v, %v", f, err)
	})
	w := &written{by: map[int64]map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	following.Go(func() { _ = s.store.Follow(ctx, keys.Root, w) })
	want := map[string]bool{
		keys.Players(node, alex.Part()).String():  true,
		keys.ReportPart(node, id.Part()).String(): true,
	}
	// One revision contains the parts of the player and the instance, and nothing else. The other
	// instance's figures may be written between moves, so there are several revisions.
	sequence := int64(2)
	for move := 0; !w.has(want); move++ {
		if move == 50 {
			t.Fatalf("after %d moves no revision has exactly %v: %v", move, want, w)
		}
		tell(id, client.Heartbeat{Sequence: sequence, Joined: &players.Presence{Player: alex, Name: "Alex"}})
		s.awaitPlayers("Alex@"+string(id), "Steve@"+string(id))
		tell(id, client.Heartbeat{Sequence: sequence + 1, Left: alex})
		s.awaitPlayers("Steve@" + string(id))
		sequence += 2
	}
	for _, id := range []fleet.InstanceID{id, other} {
		s.order(id, 1, fleet.OrderStop)
		s.awaitState(id, 1, fleet.Stopped)
	}
}

// written are the keys that were written, by revision.
type written struct {
	mu sync.Mutex
	by map[int64]map[string]bool
}

func (w *written) Reset([]store.KeyValue, int64) {}

func (w *written) Apply(changes []store.Change, _ int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		if w.by[c.ModRev] == nil {
			w.by[c.ModRev] = map[string]bool{}
		}
		w.by[c.ModRev][c.Key] = true
	}
}

func (w *written) has(keys map[string]bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.by {
		if maps.Equal(k, keys) {
			return true
		}
	}
	return false
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.by)
}
