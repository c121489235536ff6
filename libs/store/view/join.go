package view

import (
	"github.com/tidwall/btree"

	"github.com/orreryhq/orrery/libs/fleet"
)

// applyInstance replaces one record of a joined instance by creating a new join. Records without
// an intent are kept in Orphans until the intent arrives or they are removed. A join without any
// record is dropped. All changes of an instance by one list share one new join: with
// 100,000 instances, a join per change would take 95 MiB until the batch is processed.
func (s *Snapshot) applyInstance(c *Change) {
	id := fleet.InstanceID(c.Key[len(c.Key)-1])
	old, had := s.joined(id)
	c.JoinedBefore = old
	if had && old.Intent.ID != "" {
		c.InstanceBefore = old
	}
	next := new(fleet.Instance)
	switch {
	case had && s.joinedByList(id, old):
		before := *old
		old, next = &before, old
	case had:
		*next = *old
	}
	replace(next, c, s.beforeList != nil && s.beforeList.Rev == 0)
	if !isEmpty(next) {
		c.Joined = next
	}
	s.index(id, old, c.Joined)
	if next.Intent.ID != "" {
		c.Instance = next
	}
}

// joinedByList reports whether the list that is being applied has created the join of an instance.
func (s *Snapshot) joinedByList(id fleet.InstanceID, i *fleet.Instance) bool {
	if s.beforeList == nil {
		return false
	}
	before, _ := s.beforeList.joined(id)
	return i != before
}

func isEmpty(i *fleet.Instance) bool {
	return i.Intent.ID == "" && i.Placement == nil && i.Order == nil && i.Status == nil && i.Pending == nil
}

// replace puts the changed record into its field of the join. first is true for a change by the first list,
// which comes in the order of keys.
func replace(i *fleet.Instance, c *Change, first bool) {
	switch c.Kind {
	case KindIntent:
		if i.Intent.ID != "" {
			before := i.Intent
			c.Before = &before
		}
		i.Intent = fleet.Intent{}
		if v, ok := c.After.(*fleet.Intent); ok {
			i.Intent = *v
			c.After = &i.Intent // the decoded one is no longer needed
		}
	case KindPlacement:
		if p, ok := c.After.(*fleet.Placement); ok && first && i.Placement != nil && i.Placement.ModRev > p.ModRev {
			return // it is on two nodes, and this one is in the list later, but older
		}
		part(&i.Placement, c, func(p *fleet.Placement) bool { return string(p.Node) == c.Key[0] })
	case KindOrder:
		part(&i.Order, c, func(o *fleet.Order) bool { return string(o.Node) == c.Key[0] })
	case KindStatus:
		part(&i.Status, c, nil)
	case KindPending:
		part(&i.Pending, c, nil)
	}
}

// part replaces one optional record. A removal only counts if mine reports that the current record
// has the removed key, because it may have moved to another node's key.
func part[T any](place **T, c *Change, mine func(*T) bool) {
	if *place != nil {
		c.Before = *place
	}
	switch v, present := c.After.(*T); {
	case present:
		*place = v
	case *place != nil && (mine == nil || mine(*place)):
		*place = nil
	}
}

// index replaces a join with another one in every table that contains it. Most changes leave it
// where it is.
func (s *Snapshot) index(id fleet.InstanceID, old, next *fleet.Instance) {
	was := placesOf(id, old)
	is := was.then(id, old, next)
	put(s.Instances.tree, was.instance, is.instance, next)
	put(s.Orphans.tree, was.orphan, is.orphan, next)
	reindex(s.byGroup.tree, was.group, is.group)
	reindex(s.byNode.tree, was.node, is.node)
	s.indexToken(id, tokenOf(old), tokenOf(next))
}

// tokenOf returns the hash of an instance's root token, "" before it has one.
func tokenOf(i *fleet.Instance) string {
	if i == nil || i.Status == nil {
		return ""
	}
	return i.Status.TokenHash
}

// indexToken updates the index of instances by token hash. An entry that another instance has
// taken since stays.
func (s *Snapshot) indexToken(id fleet.InstanceID, was, is string) {
	if was == is {
		return
	}
	if holder, ok := s.ownByHash.Get(was); ok && holder == id {
		s.ownByHash.tree.Delete(was)
	}
	if is != "" {
		s.ownByHash.tree.Set(is, id)
	}
}

// places are the keys of a join in the tables, "" if it is not in a table.
type places struct {
	instance, orphan fleet.InstanceID
	group, node      pair
}

func placesOf(id fleet.InstanceID, i *fleet.Instance) (p places) {
	if i == nil {
		return p
	}
	if i.Intent.ID == "" {
		p.orphan = id
	} else {
		p.instance, p.group = id, pairOf(i.Intent.Group, id)
	}
	if i.Placement != nil {
		p.node = pairOf(i.Placement.Node, id)
	}
	return p
}

// then returns the places of the next join of an instance whose previous join was at p. Mostly
// they are the same, and their keys are reused.
func (p places) then(id fleet.InstanceID, old, next *fleet.Instance) places {
	if old == nil || next == nil || old.Intent.ID != next.Intent.ID || old.Intent.Group != next.Intent.Group {
		return placesOf(id, next)
	}
	if n := nodeOf(next); n != nodeOf(old) {
		p.node = ""
		if next.Placement != nil {
			p.node = pairOf(n, id)
		}
	}
	return p
}

// nodeOf returns the node on which an instance has a placement.
func nodeOf(i *fleet.Instance) fleet.NodeID {
	if i.Placement == nil {
		return ""
	}
	return i.Placement.Node
}

// reindex changes an instance's key in an index.
func reindex(t *btree.Map[pair, struct{}], was, is pair) {
	switch {
	case was == is:
		return
	case was != "":
		t.Delete(was)
	}
	if is != "" {
		t.Set(is, struct{}{})
	}
}

func put[K ~string](t *btree.Map[K, *fleet.Instance], was, is K, i *fleet.Instance) {
	if was != "" && was != is {
		t.Delete(was)
	}
	if is != "" {
		t.Set(is, i)
	}
}
