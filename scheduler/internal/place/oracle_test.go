package place_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// oracle computes the model's answers naively, from all facts each time.
type oracle struct{ hosts map[fleet.NodeID]*host }

type host struct {
	place.Node
	blocked []int
	held    []place.Hold
	failed  map[string]int // by group and revision
}

func (h *host) of(g fleet.GroupName) (n int) {
	for _, held := range h.held {
		if held.Group == g {
			n++
		}
	}
	return n
}

func (h *host) used() (sum fleet.Resources) {
	for _, held := range h.held {
		sum = sum.Add(held.Resources)
	}
	return sum
}

func (h *host) offers() fleet.Resources {
	c := h.Capacity
	if h.Room.CPUFactor > 0 {
		c.CPU = int(float64(c.CPU) * h.Room.CPUFactor)
	}
	c = c.Sub(h.Room.Reserved)
	if h.Capacity.MemoryMiB < 0 || h.Capacity.MemoryMiB > 16<<20 {
		c.MemoryMiB = 0
	}
	return fleet.Resources{MemoryMiB: max(0, c.MemoryMiB), CPU: max(0, c.CPU), DiskMiB: max(0, c.DiskMiB)}
}

func (h *host) labelled(expr string) bool {
	e, err := label.ParseLabelExpr(expr)
	return err == nil && e.Matches(h.Labels)
}

// suits reports whether the rules that do not depend on held resources admit the request.
func (h *host) suits(r *place.Request) bool {
	p := r.Plan
	return r.Leaves != h.ID && h.Live && !h.Cordoned && p.Where.Allows(h.ID) && p.Runtime == fleet.RuntimeProcess && h.admitsUser(p.Confine.User) &&
		allOf(p.Where.Affinity, h.labelled) && allOf(p.Where.AntiAffinity, func(e string) bool { return !h.labelled(e) })
}

func (h *host) admitsUser(user string) bool {
	return user == "" || h.Policy == nil || slices.Contains(h.Policy.Users, user)
}

func (h *host) portsLeft(p *fleet.Plan) bool {
	taken := map[int]bool{}
	for _, b := range h.blocked {
		taken[b] = true
	}
	for _, held := range h.held {
		for _, port := range held.Ports {
			taken[port] = true
		}
	}
	ranges := []fleet.PortRange{p.Ports}
	for _, np := range p.AdditionalPorts {
		ranges = append(ranges, np.Range)
	}
	return portsFit(ranges, taken)
}

func (h *host) mixes(r *place.Request) bool {
	for _, held := range h.held {
		if held.Group != r.Group && (held.Alone || r.Plan.Where.Alone) {
			return false
		}
	}
	return true
}

func (o *oracle) fits(h *host, r *place.Request) bool {
	p := r.Plan
	return (r.Pinned == "" || r.Pinned == h.ID) && h.suits(r) &&
		p.Resources.Fits(h.offers().Sub(h.used())) &&
		(r.Pinned != "" || h.CPULoad <= maxCPU || !o.alternative(r)) &&
		(h.DiskMiB == 0 && h.DiskFreeMiB == 0 || r.TemplateMiB <= h.DiskFreeMiB) &&
		(h.Room.MaxInstances == 0 || len(h.held) < h.Room.MaxInstances) &&
		(p.Where.MaxPerNode == 0 || h.of(r.Group) < p.Where.MaxPerNode) &&
		h.mixes(r) && h.portsLeft(p) && o.balanced(h, r)
}

// maxCPU is the load bound of both the oracle and its model.
const maxCPU = 0.8

// alternative reports whether a node at or below the load bound could hold the request if
// it were empty.
func (o *oracle) alternative(r *place.Request) bool {
	for _, h := range o.hosts {
		if h.suits(r) && r.Plan.Resources.Fits(h.offers()) && h.CPULoad <= maxCPU {
			return true
		}
	}
	return false
}

// counts returns the group's instances by zone, and the zones that could hold one.
func (o *oracle) counts(r *place.Request) (by map[string]int, hold map[string]bool) {
	by, hold = map[string]int{}, map[string]bool{}
	for _, h := range o.hosts {
		zone, ok := h.Labels["zone"]
		if !ok {
			continue
		}
		by[zone] += h.of(r.Group)
		if h.suits(r) && r.Plan.Resources.Fits(h.offers()) {
			hold[zone] = true
		}
	}
	return by, hold
}

func (o *oracle) balanced(h *host, r *place.Request) bool {
	w := r.Plan.Where
	if w.Spread == "" || w.MaxSkew == 0 || r.Pinned != "" {
		return true
	}
	zone, ok := h.Labels["zone"]
	by, hold := o.counts(r)
	for other := range hold {
		if by[zone]+1-by[other] > w.MaxSkew {
			return false
		}
	}
	return ok
}

// score computes a node's score as the documentation describes it.
func (o *oracle) score(h *host, r *place.Request) (total float64) {
	free, all := h.offers().Sub(h.used()), h.offers()
	share := func(part, whole int) float64 {
		if whole == 0 {
			return 0
		}
		return max(0, min(1, float64(part)/float64(whole)))
	}
	ports := 0
	for p := r.Plan.Ports.Start; p <= r.Plan.Ports.End; p++ {
		if slices.Contains(h.blocked, p) || slices.ContainsFunc(h.held, func(held place.Hold) bool { return slices.Contains(held.Ports, p) }) {
			ports++
		}
	}
	warm, layers := 0.0, 0.0
	for _, l := range r.Plan.Layers {
		if l.Digest != "" {
			layers++
			if slices.Contains(h.Warm, l.Digest) {
				warm++
			}
		}
	}
	values := map[score.Part]float64{
		score.Memory: share(free.MemoryMiB, all.MemoryMiB), score.CPU: min(1-h.CPULoad, share(free.CPU, all.CPU)),
		score.Instances: 1 / float64(1+len(h.held)), score.Ports: 1 - share(ports, r.Plan.Ports.Len()),
		score.Spread: o.spread(h, r), score.Own: 1 / float64(1+h.of(r.Group)),
		score.Packed: share(h.used().MemoryMiB, all.MemoryMiB), score.Warm: 1,
	}
	if layers > 0 {
		values[score.Warm] = warm / layers
	}
	sum := 0.0
	for part, v := range values {
		total += r.Plan.Where.Weight(part) * v
		sum += r.Plan.Where.Weight(part)
	}
	if sum > 0 {
		total /= sum
	}
	for _, pref := range r.Plan.Where.Prefer {
		if h.labelled(pref.Label) {
			total += float64(pref.Weight) / 100
		}
	}
	if h.failed[fmt.Sprint(r.Group, r.Plan.GroupRevision)] >= 5 {
		total -= 1000
	}
	return total
}

func (o *oracle) spread(h *host, r *place.Request) float64 {
	zone, ok := h.Labels["zone"]
	if !ok || r.Plan.Where.Spread == "" {
		return 1
	}
	by, _ := o.counts(r)
	fullest := 0
	for _, n := range by {
		fullest = max(fullest, n)
	}
	if fullest == 0 {
		return 1
	}
	return 1 - float64(by[zone])/float64(fullest)
}

// rounding is the tolerance for the rounding of each score part.
const rounding = 2e-5

func TestAnOracleThatLooksAtEverythingSaysTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, o := place.NewModel(), &oracle{hosts: map[fleet.NodeID]*host{}}
		m.SetMaxCPU(maxCPU)
		set := func(id fleet.NodeID) {
			n, blocked := drawNode(t, id), anyPorts.Draw(t, "blocked")
			m.SetNode(n, blocked)
			h := &host{failed: map[string]int{}}
			if have, ok := o.hosts[id]; ok {
				h = have
			}
			h.Node, h.blocked = n, blocked
			o.hosts[id] = h
		}
		for range rapid.IntRange(1, 5).Draw(t, "nodes") {
			set(anyNode.Draw(t, "node"))
		}
		plans := []*fleet.Plan{drawPlan(t), drawPlan(t)}
		for step := range rapid.IntRange(1, 30).Draw(t, "steps") {
			id := anyNode.Draw(t, "of")
			h, known := o.hosts[id]
			switch rapid.IntRange(0, 10).Draw(t, "step") {
			case 0:
				set(id)
			case 10: // ask what-if questions of a clone
				m = m.Clone()
			case 1:
				if known && len(h.held) > 0 {
					m.Release(h.held[0])
					h.held = h.held[1:]
				}
			case 2:
				if known {
					g, revision := anyGroup.Draw(t, "failed"), rapid.Int64Range(1, 2).Draw(t, "failedRevision")
					for range 5 {
						m.Failed(id, g, revision, time.Unix(0, 0))
					}
					h.failed[fmt.Sprint(g, revision)] += 5
				}
			case 3: // the node leaves, and may come back
				if known {
					m.RemoveNode(id)
					h.Node, h.blocked = place.Node{ID: id}, nil
				}
			default:
				r := drawAsked(t, step, plans)
				c, u := m.Place(&r)
				o.check(t, &r, c, u)
				if u == nil {
					o.hosts[c.Node].held = append(o.hosts[c.Node].held, c.Hold)
				}
			}
		}
	})
}

// check compares an answer of the model with the oracle's.
func (o *oracle) check(t *rapid.T, r *place.Request, c place.Choice, u *place.Unfit) {
	var fit []fleet.NodeID
	best := -1e9
	for id, h := range o.hosts {
		if o.fits(h, r) {
			fit, best = append(fit, id), max(best, o.score(h, r))
		}
	}
	if u != nil {
		if len(fit) > 0 {
			t.Fatalf("%v can take it, yet: %s", fit, u.Message)
		}
		return
	}
	if !slices.Contains(fit, c.Node) {
		t.Fatalf("%s cannot take it, %v can", c.Node, fit)
	}
	if own := o.score(o.hosts[c.Node], r); own < best-rounding || own < c.Score.Total()-rounding || own > c.Score.Total()+rounding {
		t.Fatalf("%s is worth %v (it says %v), the best %v", c.Node, own, c.Score.Parts(), best)
	}
}
