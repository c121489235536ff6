package controller

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/enforcer/client"
	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/enforcer/internal/replay"
	"github.com/orreryhq/orrery/enforcer/internal/scale"
	"github.com/orreryhq/orrery/enforcer/internal/webhook"
	"github.com/orreryhq/orrery/libs/autoscale"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxParsed bounds the parsed policies that are kept.
const maxParsed = 2048

// policies parses the scaling policies of groups once.
type policies struct {
	mu     sync.Mutex
	parsed map[scalepolicy.Policy]scaling.Rule
}

func newPolicies() *policies { return &policies{parsed: map[scalepolicy.Policy]scaling.Rule{}} }

// rules returns the policies of a group, in their order. answer gives the answers of webhooks.
func (p *policies) rules(all []scalepolicy.Policy, answer func(scalepolicy.Policy) scaling.Answer) []scaling.Rule {
	var out []scaling.Rule
	for _, one := range all {
		if one.Type == scalepolicy.Webhook {
			a := answer(one)
			out = append(out, scaling.Rule{Name: one.Name, Ask: func(scaling.Metrics, time.Time) scaling.Answer { return a }})
			continue
		}
		out = append(out, p.rule(one))
	}
	return out
}

// rule returns a parsed policy. One that cannot be parsed, which a gateway refuses, has no answer.
func (p *policies) rule(one scalepolicy.Policy) scaling.Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.parsed[one]; ok {
		return r
	}
	r, err := autoscale.Parse(one)
	if err != nil {
		why := scaling.Answer{Message: errs.MessageOf(err)}
		r.Ask = func(scaling.Metrics, time.Time) scaling.Answer { return why }
	}
	if len(p.parsed) >= maxParsed {
		clear(p.parsed)
	}
	p.parsed[one] = r
	return r
}

// newWebhooks returns the client of the webhooks.
func (c *Controller) newWebhooks() *webhook.Client {
	return webhook.New(webhook.Config{
		Log: c.log, Now: c.now, Answered: c.look,
		Called: func(ok bool) {
			result := callFailed
			if ok {
				result = callSucceeded
			}
			c.metrics.webhooks.WithLabelValues(result).Inc()
		},
		Egress: egress.Policy{Allowed: func(ctx context.Context) (egress.Allowed, error) {
			if err := c.view.Synced(ctx); err != nil {
				return egress.Allowed{}, err
			}
			if list := c.view.Snapshot().Config().Patch.AllowedEgress; list != nil {
				return egress.Parse(*list), nil
			}
			return egress.Allowed{}, nil
		}},
	})
}

// loadLook is a look at a group's load, as a pass saw it.
type loadLook struct {
	in  scale.Input
	out scale.Outcome
}

// withPolicies completes the input of a pass. The returned pointer has what the pass saw of the load, once
// it is planned; its spec is nil if it did not look.
func (c *Controller) withPolicies(in *plan.Input) *loadLook {
	seen := &loadLook{}
	if in.Group == nil {
		return seen
	}
	in.Wall = c.wall().Round(0)
	in.Rules = c.policies.rules(in.Group.Spec.Scaling.Policies, func(p scalepolicy.Policy) scaling.Answer {
		return c.webhooks.Answer(in.Group.Name, p)
	})
	in.Scales = func(i scale.Input, o scale.Outcome) { seen.in, seen.out = i, o }
	return seen
}

// followUp records what a pass saw of the load of a group, and calls the webhooks that are due. It returns
// when the next call is due; zero for never.
func (c *Controller) followUp(name fleet.GroupName, seen *loadLook, now time.Time) time.Time {
	if seen.in.Spec == nil {
		return time.Time{}
	}
	var answers map[string]scaling.Answer
	all := seen.in.Spec.Scaling.Policies
	for _, p := range all {
		if p.Type == scalepolicy.Webhook {
			if answers == nil {
				answers = map[string]scaling.Answer{}
			}
			answers[p.Name] = c.webhooks.Answer(name, p)
		}
	}
	c.recorder.Add(name, replay.NewRecord(seen.in, seen.out, answers, now))
	return c.webhooks.Call(name, all, seen.in.Metrics())
}

// Replay decides the recorded situations of a group again, with other scaling rules. It returns NotFound
// if the group is not owned or nothing is recorded.
func (c *Controller) Replay(name fleet.GroupName, q client.ReplayQuestion) (client.Replay, error) {
	if _, ok := c.replica.Owned().Fence(name); !ok {
		return client.Replay{}, errs.New(errs.Unavailable, "this enforcer does not decide about group %s now: retry in a moment", name)
	}
	records := c.recorder.Of(name)
	if len(records) == 0 {
		return client.Replay{}, errs.New(errs.NotFound, "nothing is recorded of group %s yet: its load is recorded while it scales automatically", name)
	}
	spec := fleet.DefaultSpec()
	if g, ok := c.view.Snapshot().Groups.Get(name); ok {
		spec = g.Spec
	}
	spec.Scaling, spec.Players.Max = q.Scaling, q.MaxPlayers
	return replay.Run(records, &spec, func(answers map[string]scaling.Answer) []scaling.Rule {
		return c.policies.rules(q.Scaling.Policies, func(p scalepolicy.Policy) scaling.Answer { return answers[p.Name] })
	}), nil
}

// forgetDeleted drops the recorded situations of deleted groups.
func (c *Controller) forgetDeleted(b *view.Batch) {
	for i := range b.Changes {
		if ch := &b.Changes[i]; ch.Kind == view.KindGroup && ch.After == nil {
			c.recorder.Forget(ch.Group())
		}
	}
}
