package place

const (
	// few is among how many of the best nodes a request that is shuffled chooses.
	few = 8
	// fewWithin is how much worse than the best such a node may be.
	fewWithin = unit / 10
)

// spot is a place in a value's heap.
type spot struct {
	ranked
	value, at int32
}

// another is one of the best few nodes that fit, but for the one to be avoided when
// there is another; nil when none fits. The same seed chooses the same of the same nodes.
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
	for r.Shuffle != 0 && near < len(best) && best[0].total-best[near].total <= fewWithin {
		near++
	}
	return best[mix(r.Shuffle)%uint64(near)].node
}

// bestFew are the best nodes, best first. In a heap none is better than the one above
// it, so only the neighbours of those already found need to be looked at.
func (k *ranking) bestFew() []spot {
	var edge, best []spot
	look := func(value, at int32) {
		if v := &k.values[value]; int(at) < len(v.fits) {
			s := spot{v.fits[at], value, at}
			s.total += k.spreadPart(value)
			edge = append(edge, s)
		}
	}
	for i := range k.values {
		if k.admits(int32(i)) {
			look(int32(i), 0)
		}
	}
	for len(best) < few && len(edge) > 0 {
		top := 0
		for i := range edge {
			if edge[i].above(&edge[top].ranked) {
				top = i
			}
		}
		s := edge[top]
		edge[top] = edge[len(edge)-1]
		edge = edge[:len(edge)-1]
		best = append(best, s)
		look(s.value, 2*s.at+1)
		look(s.value, 2*s.at+2)
	}
	return best
}

// mix makes an even choice of a seed (splitmix64's finaliser, Steele et al. 2014).
func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
