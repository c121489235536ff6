package place

import (
	"cmp"
	"slices"
)

// level is the values with the same number of instances. They share their part of
// the score for the spread, so the best of them is that with the best node.
type level struct {
	count int
	// values is how many have nodes; binding of them bind a maximum skew.
	values, binding int
	// tops are the best nodes of those with nodes that fit.
	tops heap
}

// file puts a value among those of its count.
func (k *ranking) file(v *value) {
	if v.unlabelled || v.nodes == 0 {
		return
	}
	i, ok := k.levelOf(v.count)
	if !ok {
		k.levels = slices.Insert(k.levels, i, level{count: v.count, tops: k.spare})
		k.spare = nil
	}
	l := &k.levels[i]
	l.values++
	if v.couldHold > 0 {
		l.binding++
	}
	if len(v.fits) > 0 {
		v.top = v.fits[0].node
		l.tops.put(v.fits[0], k.topAt)
	}
}

// unfile takes a value out, before it changes.
func (k *ranking) unfile(v *value) {
	if v.unlabelled || v.nodes == 0 {
		return
	}
	i, _ := k.levelOf(v.count)
	l := &k.levels[i]
	l.values--
	if v.couldHold > 0 {
		l.binding--
	}
	if v.top != nil {
		l.tops.remove(v.top, k.topAt)
		v.top = nil
	}
	if l.values == 0 {
		k.spare = l.tops
		k.levels = slices.Delete(k.levels, i, i+1)
	}
}

// levelOf is where the level of a count stands, or would stand.
func (k *ranking) levelOf(count int) (at int, ok bool) {
	return slices.BinarySearchFunc(k.levels, count, func(l level, count int) int { return cmp.Compare(l.count, count) })
}
