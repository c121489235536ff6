package place

import (
	"cmp"
	"slices"
)

// level groups the values of the spread label that have the same number of instances. They
// all get the same spread score, so the best value is the one with the best node.
type level struct {
	count int
	// values counts the values with nodes; binding counts those that limit the skew.
	values, binding int
	// tops holds the best fitting node of each value that has one.
	tops heap
}

// file adds a value to the level of its count.
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

// unfile removes a value from its level. Call it before the value changes.
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

// levelOf returns the index of the level for a count, or where to insert it.
func (k *ranking) levelOf(count int) (at int, ok bool) {
	return slices.BinarySearchFunc(k.levels, count, func(l level, count int) int { return cmp.Compare(l.count, count) })
}
