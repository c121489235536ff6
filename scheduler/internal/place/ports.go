package place

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// portSet counts who holds each port number: a stranger and an instance may hold
// one at a time, and it is free when both have let go.
type portSet struct{ held []heldPort } // in order of port

type heldPort struct{ port, by int }

// index is where a port stands, or would stand.
func (s *portSet) index(port int) (at int, held bool) {
	return slices.BinarySearchFunc(s.held, port, func(h heldPort, p int) int { return cmp.Compare(h.port, p) })
}

func (s *portSet) take(p int) {
	if p == 0 {
		return
	}
	i, held := s.index(p)
	if !held {
		s.held = slices.Insert(s.held, i, heldPort{port: p})
	}
	s.held[i].by++
}

func (s *portSet) release(p int) {
	i, held := s.index(p)
	if !held {
		return
	}
	if s.held[i].by--; s.held[i].by == 0 {
		s.held = slices.Delete(s.held, i, i+1)
	}
}

func (s *portSet) free(p int) bool {
	_, held := s.index(p)
	return !held
}

// freeRatio is the share of a range that is free.
func (s *portSet) freeRatio(r fleet.PortRange) float64 {
	if r.Len() == 0 {
		return 1
	}
	from, _ := s.index(r.Start)
	to, _ := s.index(r.End + 1)
	return 1 - float64(to-from)/float64(r.Len())
}

// lowest is the lowest free port of a range from a port on that is not among taken.
func (s *portSet) lowest(r fleet.PortRange, from int, taken []int) (port int, ok bool) {
	p := max(r.Start, from)
	for i, _ := s.index(p); p <= r.End; p++ {
		switch {
		case i < len(s.held) && s.held[i].port == p:
			i++
		case !slices.Contains(taken, p):
			return p, true
		}
	}
	return 0, false
}

// choosePorts picks the main port, the preferred one if it is free, else the
// lowest free of the range, and the additional ones. A main port that leaves an
// additional range without one is passed over. ok is false when they do not all fit.
func (n *Node) choosePorts(r *Request) (main int, named map[string]int, ok bool) {
	if p := r.PreferredPort; r.Plan.Ports.Contains(p) && n.ports.free(p) {
		if named, ok = n.chooseNamed(r.Plan.AdditionalPorts, p); ok {
			return p, named, true
		}
	}
	for from := 0; ; from = main + 1 {
		if main, ok = n.ports.lowest(r.Plan.Ports, from, nil); !ok {
			return 0, nil, false
		}
		if named, ok = n.chooseNamed(r.Plan.AdditionalPorts, main); ok {
			return main, named, true
		}
		wanted := func(np fleet.NamedPort) bool { return np.Range.Contains(main) }
		if !slices.ContainsFunc(r.Plan.AdditionalPorts, wanted) { // another main port would not help
			return 0, nil, false
		}
	}
}

// chooseNamed picks a port for each additional one beside the main one. Taking
// those whose range ends first before the others finds a choice whenever there is one.
func (n *Node) chooseNamed(ports []fleet.NamedPort, main int) (named map[string]int, ok bool) {
	if len(ports) == 0 {
		return nil, true
	}
	order := slices.Clone(ports)
	slices.SortStableFunc(order, func(a, b fleet.NamedPort) int { return cmp.Compare(a.Range.End, b.Range.End) })
	named, taken := make(map[string]int, len(order)), []int{main}
	for _, np := range order {
		p, ok := n.ports.lowest(np.Range, 0, taken)
		if !ok {
			return nil, false
		}
		named[np.Name], taken = p, append(taken, p)
	}
	return named, true
}
