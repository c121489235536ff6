package place

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// portSet counts the holders of each port number. A foreign program and an instance may
// hold the same port; it is free again when both have released it.
type portSet struct{ held []heldPort } // sorted by port

type heldPort struct{ port, by int }

// index returns the position of a port, or where to insert it.
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

// heldIn counts the held ports of a range.
func (s *portSet) heldIn(r fleet.PortRange) int {
	from, _ := s.index(r.Start)
	to, _ := s.index(r.End + 1)
	return max(0, to-from)
}

// freeRatio returns the free share of a range; 1 for an empty range.
func (s *portSet) freeRatio(r fleet.PortRange) float64 {
	if r.Len() == 0 {
		return 1
	}
	return 1 - float64(s.heldIn(r))/float64(r.Len())
}

// lowest returns the lowest free port of a range that is at least from and not in taken.
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

// run counts the consecutive held ports from p on; i is the position of p. Within a run,
// ports and positions grow in step, so binary search finds its end.
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

// choosePorts picks the main port and then the ports of q.named in order, and appends them
// to buf. The main port is the preferred one if it is free, else the lowest free one of its
// range. It skips a main port that would leave an additional range without a free port. ok
// is false when the ports do not all fit.
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
		if from == 0 && !n.othersFit(q, main, buf) { // no other main port would help either
			return nil, false
		}
		from = main + 1
	}
}

// othersFit reports whether the additional ports all fit when the main port is not taken.
// If they do, choosePorts soon finds another main port, because only the few ports that
// they then take can conflict.
func (n *Node) othersFit(q *question, main int, buf []int) bool {
	if !anyContains(q.named, main) {
		return false
	}
	_, ok := n.chooseNamed(q.named, buf)
	return ok
}

// chooseNamed appends a port for each additional port to taken. It serves the ranges in
// order of their ends, so it finds a choice whenever one exists.
func (n *Node) chooseNamed(named []fleet.NamedPort, taken []int) (all []int, ok bool) {
	for i := range named {
		from := 0
		if i > 0 && named[i].Range == named[i-1].Range { // all lower ports are held or taken
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
