package place

// heap is a binary heap of nodes, best first. The at argument of its methods maps a slot to
// its index in the heap, -1 for absent nodes. Package container/heap would allocate on each
// push.
type heap []ranked

// put adds a node, or updates it and restores the order.
func (h *heap) put(r ranked, at []int32) {
	i := at[r.node.slot]
	if i < 0 {
		i = int32(len(*h))
		*h = append(*h, r)
	} else {
		(*h)[i] = r
	}
	at[r.node.slot] = i
	h.fix(i, at)
}

// remove removes a node if it is present.
func (h *heap) remove(n *Node, at []int32) {
	i := at[n.slot]
	if i < 0 {
		return
	}
	last := int32(len(*h) - 1)
	moved := (*h)[last]
	*h, at[n.slot] = (*h)[:last], -1
	if i == last {
		return
	}
	(*h)[i], at[moved.node.slot] = moved, i
	h.fix(i, at)
}

// fix moves the entry at i up or down until the heap is in order.
func (h heap) fix(i int32, at []int32) {
	if !h.rise(i, at) {
		h.sink(i, at)
	}
}

func (h heap) rise(i int32, at []int32) (moved bool) {
	r := h[i]
	for i > 0 {
		up := (i - 1) / 2
		if !r.above(&h[up]) {
			break
		}
		h[i], at[h[up].node.slot] = h[up], i
		i, moved = up, true
	}
	h[i], at[r.node.slot] = r, i
	return moved
}

func (h heap) sink(i int32, at []int32) {
	r := h[i]
	for {
		down := 2*i + 1
		if down >= int32(len(h)) {
			break
		}
		if right := down + 1; right < int32(len(h)) && h[right].above(&h[down]) {
			down = right
		}
		if !h[down].above(&r) {
			break
		}
		h[i], at[h[down].node.slot] = h[down], i
		i = down
	}
	h[i], at[r.node.slot] = r, i
}
