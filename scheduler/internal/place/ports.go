package place

import "github.com/orreryhq/orrery/libs/fleet"

// portSet counts who holds each port number: a stranger and an instance may hold
// one at a time, and it is free when both have let go.
type portSet struct{ held map[int]int }

func (s *portSet) take(p int) {
	if p == 0 {
		return
	}
	if s.held == nil {
		s.held = map[int]int{}
	}
	s.held[p]++
}

func (s *portSet) release(p int) {
	if p == 0 {
		return
	}
	if s.held[p]--; s.held[p] <= 0 {
		delete(s.held, p)
	}
}

func (s *portSet) free(p int) bool { return s.held[p] == 0 }

// freeRatio is the share of a range that is free.
func (s *portSet) freeRatio(r fleet.PortRange) float64 {
	if r.Len() == 0 {
		return 1
	}
	taken := 0
	for p := range s.held {
		if r.Contains(p) {
			taken++
		}
	}
	return 1 - float64(taken)/float64(r.Len())
}

// choosePorts picks the main port, the preferred one if it is free, else the
// lowest free of the range, and then each additional one. ok is false when a range has none left.
func (n *Node) choosePorts(r *Request) (main int, named map[string]int, ok bool) {
	taken := map[int]bool{}
	lowest := func(rng fleet.PortRange, preferred int) (int, bool) {
		if rng.Contains(preferred) && n.ports.free(preferred) && !taken[preferred] {
			return preferred, true
		}
		for p := rng.Start; p <= rng.End; p++ {
			if n.ports.free(p) && !taken[p] {
				return p, true
			}
		}
		return 0, false
	}
	if main, ok = lowest(r.Plan.Ports, r.PreferredPort); !ok {
		return 0, nil, false
	}
	taken[main] = true
	for _, np := range r.Plan.AdditionalPorts {
		p, ok := lowest(np.Range, 0)
		if !ok {
			return 0, nil, false
		}
		if named == nil {
			named = map[string]int{}
		}
		named[np.Name], taken[p] = p, true
	}
	return main, named, true
}
