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

// heldIn is how many ports of a range are held.
func (s *portSet) heldIn(r fleet.PortRange) int {
	from, _ := s.index(r.Start)
	to, _ := s.index(r.End + 1)
	return max(0, to-from)
}

// freeRatio is the share of a range that is free; 1 for an empty range.
func (s *portSet) freeRatio(r fleet.PortRange) float64 {
	if r.Len() == 0 {
		return 1
	}
	return 1 - float64(s.heldIn(r))/float64(r.Len())
}

// lowest is the lowest free port of a range from a port on that is not among taken.
func (s *portSet) lowest(r fleet.PortRange, from int, taken []int) (port int, ok bool) {
	p := max(r.Start, from)
	i, _ := s.index(p)
	for p <= r.End {
		run := s.run(p, i)
		if p, i = p+run, i+run; p > r.End {
			break
		}
		if !slices.Contains(taken, p) {
			return p, true
		}
		p++
	}
	return 0, false
}

// run is how many ports from p on are held without a gap; i is where p stands. In a
// run, ports grow as their places do, so its end is found by halving.
func (s *portSet) run(p, i int) int {
	from, to := 0, len(s.held)-i
	for from < to {
		if mid := (from + to) / 2; s.held[i+mid].port == p+mid {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from
}

// choosePorts picks the main port, the preferred one if it is free, else the lowest
// free of the range, and after it those of q.named in their order. A main port that
// leaves an additional range without one is passed over. ok is false when they do not
// all fit. The ports are appended to buf.
func (n *Node) choosePorts(q *question, preferred int, buf []int) (ports []int, ok bool) {
	if q.Plan.Ports.Contains(preferred) && n.ports.free(preferred) {
		if ports, ok = n.chooseNamed(q.named, append(buf, preferred)); ok {
			return ports, true
		}
	}
	for from := 0; ; {
		main, ok := n.ports.lowest(q.Plan.Ports, from, nil)
		if !ok {
			return nil, false
		}
		if ports, ok = n.chooseNamed(q.named, append(buf, main)); ok {
			return ports, true
		}
		if from == 0 && !n.othersFit(q, main, buf) { // no other main port would help
			return nil, false
		}
		from = main + 1
	}
}

// othersFit reports whether the additional ports all fit without a main port that
// they do not fit beside. Then it is soon passed over: all but the ports they take
// without it do.
func (n *Node) othersFit(q *question, main int, buf []int) bool {
	if !anyContains(q.named, main) {
		return false
	}
	_, ok := n.chooseNamed(q.named, buf)
	return ok
}

// chooseNamed appends a port for each additional one to those taken. Taking those
// whose range ends first before the others finds a choice whenever there is one.
func (n *Node) chooseNamed(named []fleet.NamedPort, taken []int) (all []int, ok bool) {
	for i := range named {
		from := 0
		if i > 0 && named[i].Range == named[i-1].Range { // all below is held or taken
			from = taken[len(taken)-1] + 1
		}
		p, ok := n.ports.lowest(named[i].Range, from, taken)
		if !ok {
			return nil, false
		}
		taken = append(taken, p)
	}
	return taken, true
}

func anyContains(named []fleet.NamedPort, port int) bool {
	for i := range named {
		if named[i].Range.Contains(port) {
			return true
		}
	}
	return false
}
