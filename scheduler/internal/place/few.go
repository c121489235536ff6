package place

// few is the number of best nodes among which a shuffled request chooses.
const few = 8

// spot is a position in the heap of a value or of a level.
type spot struct {
	ranked
	in     heap
	at     int
	spread int64
	level  bool
}

// another chooses one of the few best nodes that fit, and takes r.Avoid only when it is the
// only one. It returns nil when none fits. The same seed and the same nodes give the same
// choice.
func (k *ranking) another(r *Request) *Node {
	best := k.bestFew()
	for i := range best {
		if best[i].node.ID == r.Avoid && len(best) > 1 {
			best = append(best[:i], best[i+1:]...)
			break
		}
	}
	if len(best) == 0 {
		return nil
	}
	near := 1
	for r.Shuffle != 0 && near < len(best) && best[near].equals(&best[0].ranked) {
		near++
	}
	return best[mix(r.Shuffle)%uint64(near)].node
}

// bestFew returns the few best nodes, best first. No heap entry is better than its parent,
// so it looks only at the children of the entries it has already taken.
func (k *ranking) bestFew() []spot {
	var edge, best []spot
	look := func(s spot) {
		if s.at < len(s.in) {
			s.ranked = s.in[s.at]
			s.total += s.spread
			edge = append(edge, s)
		}
	}
	if k.admits(noValue) {
		look(spot{in: k.values[noValue].fits, spread: k.spreadPart(noValue)})
	}
	for i := range k.levels {
		if l := &k.levels[i]; k.admitsCount(l.count) {
			look(spot{in: l.tops, spread: k.spreadOf(l.count), level: true})
		}
	}
	for len(best) < few && len(edge) > 0 {
		s := takeBest(&edge)
		best = append(best, s)
		below := spot{in: s.in, spread: s.spread, level: s.level}
		for below.at = 2*s.at + 1; below.at <= 2*s.at+2; below.at++ {
			look(below)
		}
		if s.level { // the other nodes of the value whose best node this is
			below.in, below.level = k.values[k.valueOf(s.node)].fits, false
			for below.at = 1; below.at <= 2; below.at++ {
				look(below)
			}
		}
	}
	return best
}

// takeBest removes and returns the best of the spots.
func takeBest(some *[]spot) spot {
	top, last := 0, len(*some)-1
	for i := range *some {
		if (*some)[i].above(&(*some)[top].ranked) {
			top = i
		}
	}
	s := (*some)[top]
	(*some)[top] = (*some)[last]
	*some = (*some)[:last]
	return s
}

// mix spreads a seed evenly over 64 bits (the finalizer of splitmix64, Steele et al. 2014).
func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
