package place

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// portSet counts who holds each port number: a stranger and an instance may hold
// one at a time, and it is free when both have let go. It is sorted by number, so
// that a node costs what it holds, not 64 Ki bits.
type portSet struct{ held []heldPort }

type heldPort struct{ port, holders int }

// at is where a port stands or would stand.
func (s *portSet) at(p int) (int, bool) {
	return slices.BinarySearchFunc(s.held, p, func(h heldPort, p int) int { return cmp.Compare(h.port, p) })
}

func (s *portSet) take(p int) {
	if p == 0 {
		return
	}
	i, ok := s.at(p)
	if !ok {
		s.held = slices.Insert(s.held, i, heldPort{port: p})
	}
	s.held[i].holders++
}

func (s *portSet) release(p int) {
	i, ok := s.at(p)
	if p == 0 || !ok {
		return
	}
	if s.held[i].holders--; s.held[i].holders == 0 {
		s.held = slices.Delete(s.held, i, i+1)
	}
}

func (s *portSet) free(p int) bool {
	_, ok := s.at(p)
	return !ok
}

// freeRatio is the share of a range that is free.
func (s *portSet) freeRatio(r fleet.PortRange) float64 {
	if r.Len() == 0 {
		return 1
	}
	first, _ := s.at(r.Start)
	end, _ := s.at(r.End + 1)
	return 1 - float64(end-first)/float64(r.Len())
}

// lowest is the lowest free port of a range that is not among some others.
func (s *portSet) lowest(r fleet.PortRange, others []int) (int, bool) {
	i, _ := s.at(r.Start)
	for p := r.Start; p <= r.End; p++ {
		if i < len(s.held) && s.held[i].port == p {
			i++
			continue
		}
		if !slices.Contains(others, p) {
			return p, true
		}
	}
	return 0, false
}

// choosePorts picks the main port, the preferred one if it is free, else the
// lowest free of the range, and one for each additional range, in their order. ok
// is false when no choice gives each a port of its own.
func (n *Node) choosePorts(r *Request, preferred int) (main int, extra []int, ok bool) {
	var taken []int
	if !r.Plan.Ports.Contains(preferred) || !n.ports.free(preferred) {
		preferred = 0
	}
	for range len(r.Plan.AdditionalPorts) + 2 {
		main, ok = preferred, true
		if preferred == 0 {
			main, ok = n.ports.lowest(r.Plan.Ports, taken)
		}
		if !ok {
			return 0, nil, false
		}
		if extra, ok = n.ports.match(r.Plan.AdditionalPorts, main); ok {
			return main, extra, true
		}
		// It stands in an additional range's way: the next one may not. Of k additional
		// ranges that fit at all, no more than k main ports can be in the way.
		taken, preferred = append(taken, main), 0
	}
	return 0, nil, false
}

// match gives each range a free port of its own other than main, whenever that
// is possible. Ports are handed out upwards, each to the range that ends first of
// those it lies in (Glover's rule for convex bipartite graphs, 1967).
func (s *portSet) match(ranges []fleet.NamedPort, main int) ([]int, bool) {
	if len(ranges) == 0 {
		return nil, true
	}
	ports := make([]int, len(ranges))
	given := []int{main}
	p := 0
	for range ranges {
		start := 0
		for i, r := range ranges {
			if ports[i] == 0 && (start == 0 || r.Range.Start < start) {
				start = r.Range.Start
			}
		}
		next, ok := s.lowest(fleet.PortRange{Start: max(p+1, start), End: maxPort}, given)
		if !ok {
			return nil, false
		}
		p = next
		urgent := -1
		for i, r := range ranges {
			if ports[i] == 0 && r.Range.Start <= p && (urgent < 0 || r.Range.End < ranges[urgent].Range.End) {
				urgent = i
			}
		}
		if ranges[urgent].Range.End < p {
			return nil, false
		}
		ports[urgent] = p
	}
	return ports, true
}

const maxPort = 65535
