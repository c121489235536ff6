package plan

import (
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// setPoolAside takes the warm instances out of those that count, so that no other rule sees them. One
// that has players although it takes none, or that retires, is left to the other rules.
func (p *pass) setPoolAside() {
	if p.group() == nil || p.group().Deleting {
		return
	}
	p.all = nil
	for _, i := range p.every {
		if i.Intent.Warm && p.wanted(i) && !i.Terminal() && !i.Retiring() && p.in.Players(i) == 0 {
			p.pool = append(p.pool, i)
		} else {
			p.all = append(p.all, i)
		}
	}
}

// prepared returns the oldest warm instance that is ready and has no action yet, and takes it out of
// the pool; nil for none.
func (p *pass) prepared() *fleet.Instance {
	n := slices.IndexFunc(p.pool, func(i *fleet.Instance) bool {
		return i.State() == fleet.Online && !i.Intent.Frozen && !p.busy[i.Intent.ID] && p.leavesPool(i) == ""
	})
	if n < 0 {
		return nil
	}
	i := p.pool[n]
	p.pool = slices.Delete(p.pool, n, n+1)
	return i
}

// leavesPool returns why a warm instance is of no use any more; "" if it is.
func (p *pass) leavesPool(i *fleet.Instance) fleet.Reason {
	e := p.in.Eviction(i.Intent.ID)
	switch {
	case i.Lost():
		return fleet.ReasonNodeLost
	case p.draining(i.Node()) != nil:
		return fleet.ReasonNodeDrained
	case e != nil && p.mayGo(i, e):
		return e.Reason
	case len(p.in.Deployments) > 0 && i.Intent.Deployment < p.in.Deployments[len(p.in.Deployments)-1].Number:
		return fleet.ReasonDeployment
	}
	return ""
}

// fillPool starts the warm instances that the group lacks, and stops those that it no longer needs.
func (p *pass) fillPool() {
	want := 0
	if s := p.spec(); s.Scaling.Mode != fleet.ScalingManual && !s.Static.Enabled {
		want = s.Scaling.WarmPoolMinimum
	}
	message := fmt.Sprintf("the group keeps %d prepared instances", want)
	useful := 0
	for _, i := range p.pool {
		switch why := p.leavesPool(i); {
		case why == fleet.ReasonNodeLost:
		case why == "" && useful < want, p.busy[i.Intent.ID], i.Intent.Frozen:
			useful++
		case why == "":
			p.stopEmpty(i, fleet.ReasonScaledDown, message)
		default:
			p.stopEmpty(i, why, why.Text())
		}
	}
	if useful >= want || p.maintained() || p.in.Unmet || p.massLoss() || !p.mayStart() {
		return
	}
	for range min(want-useful, p.in.Limits.Batch) {
		p.act(Action{Kind: Create, Origin: fleet.OriginMinimum, Warm: true, Reason: fleet.ReasonWarmPool, Message: message})
	}
}
