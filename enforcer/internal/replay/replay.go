// Package replay decides recorded situations of a group again with other scaling rules. A user compares
// the result with the decisions of that time. It uses the decider of package scale, and Run is pure.
//
// The replay has its own number of instances. It keeps the recorded players: they need the servers that
// they were on. Instances that the replay adds are empty and ready at once.
package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/enforcer/client"
	"github.com/orreryhq/orrery/enforcer/internal/scale"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

const (
	// maxLooks bounds the decisions between two records.
	maxLooks = 100
	// maxListed is how many decisions of each side a result lists: the latest.
	maxListed = 200
)

// Record is a situation and the decision in it.
type Record struct {
	// At is when, by the clock of the process. Wall is the time of day.
	At, Wall time.Time
	// Input is what the decision depended on, without the group's spec and its rules.
	Input scale.Input
	// Answers are those of webhooks, by policy.
	Answers map[string]scaling.Answer
	// Decision is nil if the number of instances stayed.
	Decision *scaling.Decision
}

// NewRecord returns a record of a look at a group.
func NewRecord(in scale.Input, out scale.Outcome, answers map[string]scaling.Answer, now time.Time) Record {
	r := Record{At: now, Wall: in.Wall, Input: in, Answers: answers, Decision: out.Decision}
	r.Input.Spec, r.Input.Rules = nil, nil
	return r
}

// samples is how many instances the record has, and at least 1.
func (r Record) samples() int { return 1 + len(r.Input.Instances) }

// side is what one set of rules decides.
type side struct {
	client.ReplaySide
	// begun and last are the times of the first and the latest number, count. area is the sum of number
	// and time.
	begun, last time.Time
	count       int
	area        float64
}

// Run decides the records again with a spec. rules returns its policies when webhooks gave answers.
func Run(records []Record, spec *fleet.GroupSpec, rules func(map[string]scaling.Answer) []scaling.Rule) client.Replay {
	out := client.Replay{Since: records[0].Wall, Until: records[len(records)-1].Wall, Records: len(records), Answers: []client.PolicyAnswer{}, Notes: []string{}}
	var then, would side
	first := records[0].Input
	w := world{spec: spec, decided: first.Decided, changed: first.ChangedAt, have: first.Count}
	for n, r := range records {
		then.at(r.At, r.Input.Count)
		if d := r.Decision; d != nil {
			then.add(d, r.Wall)
		}
		end := r.At
		if n+1 < len(records) {
			end = records[n+1].At
		}
		w.pass(r, rules(r.Answers), end, &would)
	}
	out.Then, out.Would = then.result(), would.result()
	last := records[len(records)-1]
	in := w.input(last, rules(last.Answers), last.At)
	for _, r := range in.Rules {
		a := r.Ask(in.Metrics(), in.Wall)
		answer := client.PolicyAnswer{Policy: r.Name, Message: a.Message}
		if a.Given {
			answer.Instances = &a.Instances
		}
		out.Answers = append(out.Answers, answer)
	}
	if w.added > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("%d of the instances that would have been started were never started, so the replay takes them as empty and ready at once", w.added))
	}
	return out
}

// world is the state of a replay.
type world struct {
	spec    *fleet.GroupSpec
	decided int
	changed time.Time
	// have is how many instances count.
	have int
	// extra are since when the instances are empty that the record does not have.
	extra []time.Time
	added int
}

// pass decides a record, and again when time alone leads to another decision before end.
func (w *world) pass(r Record, rules []scaling.Rule, end time.Time, into *side) {
	for now, n := r.At, 0; n < maxLooks; n++ {
		in := w.input(r, rules, now)
		into.at(now, w.have)
		o := scale.Decide(in, now)
		if d := o.Decision; d != nil {
			into.add(d, in.Wall)
			w.decided, w.changed = d.Target, now
			if d.Up() {
				w.have = d.To
			} else {
				w.have -= len(o.Stop)
			}
			into.at(now, w.have)
			continue
		}
		if o.Wake.IsZero() || !o.Wake.Before(end) {
			return
		}
		now = o.Wake
	}
}

// input returns the record as the replay changes it.
func (w *world) input(r Record, rules []scaling.Rule, now time.Time) scale.Input {
	in := r.Input
	in.Spec, in.Rules, in.Wall = w.spec, rules, r.Wall.Add(now.Sub(r.At))
	in.Decided, in.ChangedAt, in.Instances = w.decided, w.changed, nil
	byHand := max(0, r.Input.Count-r.Input.Own)
	fixed := 0
	for _, i := range r.Input.Instances {
		if i.IdleSince.IsZero() && !i.Closed {
			fixed++
		}
	}
	w.have = max(w.have, fixed, scaling.Target(w.spec, w.decided))
	idle := w.have - fixed
	for _, i := range r.Input.Instances {
		switch {
		case i.IdleSince.IsZero():
			in.Instances = append(in.Instances, i)
		case idle > 0:
			in.Instances = append(in.Instances, i)
			idle--
		}
	}
	for len(w.extra) < idle {
		w.extra = append(w.extra, now)
		w.added++
	}
	w.extra = w.extra[:max(0, idle)]
	for n, since := range w.extra {
		in.Instances = append(in.Instances, scale.Instance{ID: fleet.InstanceID(fmt.Sprintf("extra-%d", n)), IdleSince: since})
	}
	in.Count, in.Own = w.have, max(0, w.have-byHand)
	return in
}

// at notes the number of instances at a time.
func (s *side) at(now time.Time, n int) {
	if s.begun.IsZero() {
		s.Most, s.Least, s.begun = n, n, now
	} else {
		s.area += now.Sub(s.last).Seconds() * float64(s.count)
	}
	s.last, s.count = now, n
	s.Most, s.Least = max(s.Most, n), min(s.Least, n)
}

// add counts a decision.
func (s *side) add(d *scaling.Decision, wall time.Time) {
	if d.Up() {
		s.Up++
	} else {
		s.Down++
	}
	s.Decisions = append(s.Decisions, client.ReplayDecision{At: wall, From: d.From, To: d.To, Reason: d.Reason, Message: d.Message, Policy: d.Policy})
	if len(s.Decisions) > maxListed {
		s.Decisions = slices.Delete(s.Decisions, 0, 1)
	}
}

// result returns what was decided, with the mean number of instances.
func (s *side) result() client.ReplaySide {
	out := s.ReplaySide
	out.Average = float64(s.count)
	if took := s.last.Sub(s.begun).Seconds(); took > 0 {
		out.Average = s.area / took
	}
	if out.Decisions == nil {
		out.Decisions = []client.ReplayDecision{}
	}
	return out
}
