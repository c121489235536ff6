package presence

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/view"
)

// evacuateAgain is how soon the players of a retiring instance are sent again if no other instance took
// them and nothing changed.
const evacuateAgain = 10 * time.Second

// Evacuations sends the players of retiring instances to other instances. All gateways do this; one
// transfer of a player is enough.
type Evacuations struct {
	view *view.View
	send func(context.Context, players.Player, *fleet.Instance) error
	log  *slog.Logger
	now  func() time.Time
	wake chan struct{}

	mu sync.Mutex
	// since is when each retiring instance was first seen to retire, by this gateway's clock.
	since map[fleet.InstanceID]time.Time
	// heard is set once the view's first list was processed.
	heard bool
}

// NewEvacuations returns Evacuations. Start Run and subscribe OnBatch to the view. send requests the
// transfer of a player who is on a retiring instance.
func NewEvacuations(v *view.View, send func(context.Context, players.Player, *fleet.Instance) error, log *slog.Logger, now func() time.Time) *Evacuations {
	return &Evacuations{view: v, send: send, log: log, now: now, wake: make(chan struct{}, 1), since: map[fleet.InstanceID]time.Time{}}
}

// OnBatch notes which instances retire, and looks for their players when something changed that
// concerns them.
func (e *Evacuations) OnBatch(b view.Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	look := false
	for _, c := range b.Changes {
		switch c.Kind {
		case view.KindIntent:
			look = e.note(c) || look
		case view.KindStatus, view.KindPlayers, view.KindTransfer:
			look = true
		default:
		}
	}
	e.heard = true
	if !look || len(e.since) == 0 {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// note records whether an intent retires. It reports whether that is new.
func (e *Evacuations) note(c view.Change) bool {
	after, _ := c.After.(*fleet.Intent)
	if after == nil || after.Retire == nil {
		if before, _ := c.Before.(*fleet.Intent); before != nil {
			delete(e.since, before.ID)
		}
		return false
	}
	if _, known := e.since[after.ID]; known {
		return false
	}
	since := e.now()
	if at := after.Retire.At; !e.heard && at.Before(since) { // it began to retire before this gateway started
		since = at
	}
	e.since[after.ID] = since
	return true
}

// Run works until ctx ends.
func (e *Evacuations) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
		case <-timer.C:
		}
		if !pause.For(ctx, rand.N(atOnce)) {
			return
		}
		if next := e.look(ctx); next > 0 {
			timer.Reset(next)
		}
	}
}

// look requests the transfers that are due and returns the time until the next look, 0 if only a change
// requires one.
func (e *Evacuations) look(ctx context.Context) (next time.Duration) {
	s := e.view.Snapshot()
	leave, next := e.due(s)
	if len(leave) == 0 {
		return next
	}
	for _, p := range on(s, leave) {
		from := leave[p.Server]
		err := e.send(ctx, p, from)
		if ctx.Err() != nil {
			return next
		}
		if err != nil {
			e.log.Log(ctx, level(err), "a player cannot leave a retiring instance yet", "player", p.ID, "instance", from.Intent.Name, "error", err)
			if next == 0 || evacuateAgain < next {
				next = evacuateAgain
			}
		}
	}
	return next
}

// level returns how a failed transfer is logged: that no instance takes players is an ordinary state.
func level(err error) slog.Level {
	if errs.Is(err, errs.Conflict) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// due returns the instances whose players shall leave now, and the time until the next one.
func (e *Evacuations) due(s *view.Snapshot) (leave map[fleet.InstanceID]*fleet.Instance, next time.Duration) {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	leave = map[fleet.InstanceID]*fleet.Instance{}
	for id, since := range e.since {
		i, ok := s.Instances.Get(id)
		if !ok || !i.Retiring() || i.State() != fleet.Online {
			continue
		}
		wait := since.Add(time.Duration(i.Intent.Retire.TransferAfterSeconds) * time.Second).Sub(now)
		switch {
		case wait <= 0:
			leave[id] = i
		case next == 0 || wait < next:
			next = wait
		}
	}
	return leave, next
}

// on returns the players on the given instances.
func on(s *view.Snapshot, instances map[fleet.InstanceID]*fleet.Instance) (out []players.Player) {
	var told []players.Presence
	take := func() {
		if p, ok := players.MergePresence(told, s.Tells); ok && instances[p.Server] != nil {
			out = append(out, p)
		}
		told = told[:0]
	}
	for p := range s.Presences() {
		if len(told) > 0 && told[0].Player != p.Player {
			take()
		}
		told = append(told, *p)
	}
	take()
	return out
}
