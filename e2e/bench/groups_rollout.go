package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// rolledInstances is the size of the group that is deployed under players, rolledBatch how many of
	// its instances are replaced at the same time.
	rolledInstances, rolledBatch = 50, 10
	// rolledPlayers play on its instances. Each stays for at most rolledRound.
	rolledPlayers = 250
	rolledRound   = 6 * time.Second
	// playersTick is the interval at which players move and their numbers are reported.
	playersTick = 250 * time.Millisecond
	// smallRollouts groups of smallShare instances are deployed at the same time.
	smallRollouts, smallShare = 100, 3
)

// measureRollouts deploys a group under players, and then many small groups at once. A player is
// disconnected by force if its instance is stopped; the players of a retiring instance leave at the
// end of their round, long before its deadline.
func measureRollouts(ctx context.Context, b *bench) error {
	s, err := b.startSimulation(ctx, simNodes)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.decide(ctx); err != nil {
		return err
	}
	if err := s.declare(ctx, "rolled", rolledInstances); err != nil {
		return err
	}
	if err := s.until(ctx, "the instances", func(v *view.Snapshot) bool { return len(serving(v, "rolled")) == rolledInstances }); err != nil {
		return err
	}
	playing, stop := context.WithCancel(ctx)
	var playersDone sync.WaitGroup
	var failed error
	playersDone.Go(func() { failed = s.play(playing, "rolled") })
	err = s.until(ctx, "the players", func(*view.Snapshot) bool { return s.players.count() == rolledPlayers })
	began := time.Now()
	if err == nil {
		err = s.deploy(ctx, "rolled", rolledBatch)
	}
	var state deployment.State
	if err == nil {
		state, err = s.ended(ctx, "rolled")
	}
	took := time.Since(began)
	stop()
	playersDone.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if state != deployment.Completed {
		return fmt.Errorf("the deployment under players ended as %s", state)
	}
	forced, stopped := s.players.result()
	b.report("rollout_forced_disconnects", float64(forced), fmt.Sprintf("of %d players, %d stops", rolledPlayers, stopped), 0)
	b.report("rollout_50_s", took.Seconds(), "s", -1)
	return s.measureSmallRollouts(ctx, b)
}

func (s *simulation) measureSmallRollouts(ctx context.Context, b *bench) error {
	name := func(n int) fleet.GroupName { return fleet.GroupName(fmt.Sprintf("small-%03d", n)) }
	for n := range smallRollouts {
		if err := s.declare(ctx, name(n), smallShare); err != nil {
			return err
		}
	}
	for n := range smallRollouts {
		if err := s.until(ctx, string(name(n)), func(v *view.Snapshot) bool { return len(serving(v, name(n))) == smallShare }); err != nil {
			return err
		}
	}
	for n := range smallRollouts {
		if err := s.deploy(ctx, name(n), 1); err != nil {
			return err
		}
	}
	completed := 0
	for n := range smallRollouts {
		if state, err := s.ended(ctx, name(n)); err != nil {
			return err
		} else if state == deployment.Completed {
			completed++
		}
	}
	b.report("rollouts_completed", float64(completed), fmt.Sprintf("of %d", smallRollouts), smallRollouts)
	return nil
}

func (s *simulation) declare(ctx context.Context, name fleet.GroupName, minimum int) error {
	_, err := s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.Group(name), s.group(name, minimum))}})
	return err
}

// deploy requests a rolling deployment, as the gateway does.
func (s *simulation) deploy(ctx context.Context, name fleet.GroupName, batch int) error {
	g, err := store.Get(ctx, s.store, keys.Group(name))
	if err != nil {
		return err
	}
	options, problems := deployment.Requested{BatchSize: &batch}.Complete(&g.Spec, deployment.Rolling)
	if err := errors.Join(problems...); err != nil {
		return err
	}
	d := deployment.Deployment{
		Group: name, Number: 1, Trigger: deployment.TriggerManual, Strategy: deployment.Rolling, Options: options,
		GroupRevision: g.Revision, Spec: g.Spec, CreatedAt: time.Now().UTC(),
	}
	_, err = s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.Deployment(name, 1), d)}})
	return err
}

// ended waits for the end of a group's deployment.
func (s *simulation) ended(ctx context.Context, name fleet.GroupName) (state deployment.State, err error) {
	err = s.until(ctx, "the deployment of "+string(name), func(v *view.Snapshot) bool {
		d, ok := v.Deployment(name, 1)
		state = d.State()
		return ok && state.Final()
	})
	return state, err
}

// simPlayers are simulated players.
type simPlayers struct {
	mu sync.Mutex
	on map[fleet.InstanceID]int
	// gone are the stopped instances, with the number of players that each had.
	gone map[fleet.InstanceID]int
}

func (p *simPlayers) count() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, players := range p.on {
		n += players
	}
	return n
}

// ended notes that an instance is stopped now.
func (p *simPlayers) ended(i *fleet.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone == nil {
		p.gone = map[fleet.InstanceID]int{}
	}
	if _, known := p.gone[i.Intent.ID]; !known {
		p.gone[i.Intent.ID] = p.on[i.Intent.ID]
	}
}

func (p *simPlayers) result() (forced, stopped int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, players := range p.gone {
		forced += players
	}
	return forced, len(p.gone)
}

// move moves a player between instances; "" is none.
func (p *simPlayers) move(from, to fleet.InstanceID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on == nil {
		p.on = map[fleet.InstanceID]int{}
	}
	if from != "" {
		p.on[from]--
	}
	p.on[to]++
}

// figuresPart names a part of the figures of a node's instances.
type figuresPart struct {
	node fleet.NodeID
	part int
}

// play lets players join instances of a group that take players, and leave them after a round, until
// ctx ends. It reports their numbers, as agents do.
func (s *simulation) play(ctx context.Context, group fleet.GroupName) error {
	type seat struct {
		on    fleet.InstanceID
		until time.Time
	}
	random, seats := rand.New(rand.NewPCG(5, 6)), make([]seat, rolledPlayers)
	revs, told := map[figuresPart]int64{}, map[figuresPart]map[fleet.InstanceID]reports.InstanceReport{}
	for pause.For(ctx, playersTick) {
		snap, now := s.view.Snapshot(), time.Now()
		var open []fleet.InstanceID
		parts := map[figuresPart]map[fleet.InstanceID]reports.InstanceReport{}
		for i := range snap.GroupInstances(group) {
			if i.TakesPlayers() {
				open = append(open, i.Intent.ID)
			}
		}
		for n := range seats {
			if now.After(seats[n].until) && len(open) > 0 {
				to := open[random.IntN(len(open))]
				s.players.move(seats[n].on, to)
				seats[n] = seat{to, now.Add(time.Duration(random.Int64N(int64(rolledRound))))}
			}
		}
		for i := range snap.GroupInstances(group) {
			at := figuresPart{i.Node(), i.Intent.ID.Part()}
			if i.State() != fleet.Online || at.node == "" {
				continue
			}
			if parts[at] == nil {
				parts[at] = map[fleet.InstanceID]reports.InstanceReport{}
			}
			s.players.mu.Lock()
			parts[at][i.Intent.ID] = reports.InstanceReport{Players: s.players.on[i.Intent.ID], MaxPlayers: rolledPlayers, PlayersKnown: true}
			s.players.mu.Unlock()
		}
		for at, part := range parts {
			if maps.Equal(told[at], part) {
				continue
			}
			rev, err := s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.ReportPart(at.node, at.part), reports.ReportPart{At: now.UTC(), Instances: part}, revs[at])}})
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			revs[at], told[at] = rev, part
		}
	}
	return nil
}
