package answer

import (
	"math/rand/v2"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Simulate returns what would happen if nothing else changed. It modifies the moment. It
// calls more repeatedly and stops when that returns false. It fails with Invalid for an
// invalid question, with NotFound when the group or node does not exist, and with Conflict
// when more stopped it.
func Simulate(m *facts.Moment, q client.Question, more func() bool) (client.Simulation, error) {
	if err := q.Validate(); err != nil {
		return client.Simulation{}, err
	}
	s := newSimulation(m, more)
	var err error
	switch {
	case q.Place != nil:
		err = s.place(*q.Place)
	case q.Drain != nil:
		err = s.drain(*q.Drain)
	case q.Move != nil:
		err = s.moveTo(*q.Move)
	default:
		err = s.lose(q.Lose.Node)
	}
	if err == nil {
		err = s.decide()
	}
	return s.out, err
}

// simulation collects the requests for placement and then decides about them.
type simulation struct {
	m         *facts.Moment
	spawner   *spawn.Spawner
	random    *rand.Rand
	materials compose.Materials
	// plans holds one plan per digest, because requests share a ranking only if they share
	// the plan's address.
	plans map[string]*fleet.Plan
	asked []asked
	more  func() bool
	out   client.Simulation
}

// asked is a request with the index of its outcome. The index is -1 for instances that
// already wait and are not part of the question.
type asked struct {
	request *place.Request
	outcome int
}

func newSimulation(m *facts.Moment, more func() bool) *simulation {
	random := rand.New(rand.NewPCG(uint64(m.Snap.Rev), 0))
	s := &simulation{
		m: m, random: random, materials: m.Snap.Materials(), spawner: spawn.New(m.Snap, m.At, random), plans: map[string]*fleet.Plan{}, more: more,
		out: client.Simulation{Revision: m.Snap.Rev, Instances: []client.Outcome{}},
	}
	for _, i := range m.Waiting() {
		if stored, ok := m.Snap.Plans.Get(i.Intent.Plan); ok {
			s.plans[i.Intent.Plan] = &stored.Plan
			s.asked = append(s.asked, asked{facts.Request(i, &stored.Plan, m.Snap), -1})
		}
	}
	if n := len(s.asked); n > 0 {
		s.note("%d instances wait already: they would be placed first, as far as they fit and no group of higher priority is asked about", n)
	}
	return s
}

// place requests new instances of a group.
func (s *simulation) place(q client.PlaceQuestion) error {
	g, err := s.group(q.Group)
	switch {
	case q.Spec != nil && err != nil:
		g = &fleet.Group{Name: q.Group, Spec: *q.Spec}
	case err != nil:
		return err
	case q.Spec != nil:
		next := *g
		next.Spec = *q.Spec
		g = &next
	}
	g = s.m.Snap.Overlaid(g)
	living := 0
	for i := range s.m.Snap.GroupInstances(g.Name) {
		if i.Living(g.Spec.KeepsLost()) {
			living++
		}
	}
	if limit := g.Spec.Scaling.Max; limit > 0 && living+q.Count > limit {
		s.note("group %s allows %d instances and has %d: raise its maximum to start as many", g.Name, limit, living)
	}
	for range q.Count {
		if !s.more() {
			return tooLong()
		}
		s.fresh(g, client.Outcome{}, "")
	}
	return nil
}

func (s *simulation) group(name fleet.GroupName) (*fleet.Group, error) {
	g, ok := s.m.Snap.Groups.Get(name)
	switch {
	case !ok:
		return nil, errs.New(errs.NotFound, "there is no group %s", name)
	case g.Deleting:
		return nil, errs.New(errs.NotFound, "group %s is being deleted", name)
	}
	return g, nil
}

// fresh requests a new instance of a group. replaces is the instance that it replaces, if
// any.
func (s *simulation) fresh(g *fleet.Group, o client.Outcome, replaces fleet.InstanceID) {
	b := s.spawner.Fresh(g, spawn.Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested}, replaces, nil)
	o.Name, o.Group = b.Intent.Name, g.Name
	s.ask(facts.Request(&fleet.Instance{Intent: b.Intent}, s.plan(b.Plan(), b.Intent.Plan), s.m.Snap), o)
}

func (s *simulation) plan(p *fleet.Plan, digest string) *fleet.Plan {
	if have, ok := s.plans[digest]; ok {
		return have
	}
	s.plans[digest] = p
	return p
}

// ask adds a request and its outcome.
func (s *simulation) ask(r *place.Request, o client.Outcome) {
	s.asked = append(s.asked, asked{r, len(s.out.Instances)})
	s.out.Instances = append(s.out.Instances, o)
}

// decide places the requests, highest rank first, and fills the outcomes.
func (s *simulation) decide() error {
	slices.SortStableFunc(s.asked, func(a, b asked) int {
		return facts.Rank(s.m.Snap, a.request.Group).Compare(facts.Rank(s.m.Snap, b.request.Group))
	})
	requests := make([]*place.Request, len(s.asked))
	for n := range s.asked {
		requests[n] = s.asked[n].request
	}
	outcomes := s.m.PlaceAll(requests, s.more)
	if len(outcomes) < len(requests) {
		return tooLong()
	}
	waiting := map[*place.Unfit]int{}
	for n, got := range outcomes {
		if s.asked[n].outcome < 0 {
			continue
		}
		o := &s.out.Instances[s.asked[n].outcome]
		if u := got.Unfit; u != nil {
			o.Effect, o.Reason, o.Message = client.EffectPending, u.Reason, u.Reason.Text()
			s.wait(waiting, o.Group, u)
			continue
		}
		c := got.Choice
		o.Effect, o.Node, o.Port, o.Ports, o.Score = client.EffectPlaced, c.Node, c.Port, c.Ports, c.Score.Parts()
	}
	for n := range s.out.Instances {
		switch s.out.Instances[n].Effect {
		case client.EffectPlaced:
			s.out.Placed++
		case client.EffectPending:
			s.out.Pending++
		case client.EffectKept:
			s.out.Kept++
		case client.EffectStopped:
			s.out.Stopped++
		}
	}
	return nil
}

func tooLong() error {
	return errs.New(errs.Conflict, "the simulation takes too long because too many instances wait or were requested: request fewer instances at once")
}

// wait counts one more instance that waits for a reason.
func (s *simulation) wait(known map[*place.Unfit]int, g fleet.GroupName, u *place.Unfit) {
	at, ok := known[u]
	if !ok {
		at = len(s.out.Unfit)
		known[u] = at
		s.out.Unfit = append(s.out.Unfit, client.Waiting{
			Group: g, Unfit: client.Unfit{Reason: u.Reason, Message: u.Message}, Nodes: u.Nodes, Lost: u.Lost,
		})
	}
	s.out.Unfit[at].Instances++
}
