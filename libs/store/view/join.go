package view

import (
	"github.com/tidwall/btree"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// applyInstance replaces one record of a joined instance by creating a new join. Records without
// an intent are kept in Orphans until the intent arrives or they are removed. A join without any
// record is dropped.
func (s *Snapshot) applyInstance(c *Change, raw store.Change) error {
	id := fleet.InstanceID(c.Key[len(c.Key)-1])
	old, had := s.joined(id)
	var next fleet.Instance
	if had {
		next = *old
	}
	if next.Intent.ID != "" {
		c.InstanceBefore = old
	}
	if err := replace(&next, c, raw); err != nil {
		return err
	}
	c.JoinedBefore = old
	if !isEmpty(&next) {
		c.Joined = &next
	}
	s.index(id, old, c.Joined)
	if next.Intent.ID != "" {
		c.Instance = &next
	}
	return nil
}

func isEmpty(i *fleet.Instance) bool {
	return i.Intent.ID == "" && i.Placement == nil && i.Order == nil && i.Status == nil && i.Pending == nil
}

// replace decodes the changed record into its field of the join.
func replace(i *fleet.Instance, c *Change, raw store.Change) error {
	switch c.Kind {
	case KindIntent:
		if i.Intent.ID != "" {
			before := i.Intent
			c.Before = &before
		}
		if raw.Removed {
			i.Intent = fleet.Intent{}
			return nil
		}
		v, err := store.DecodeNew[fleet.Intent](raw.KeyValue)
		if err != nil {
			return err
		}
		i.Intent = *v
		c.After = v
		return nil
	case KindPlacement:
		return part(&i.Placement, c, raw, func(p *fleet.Placement) bool { return string(p.Node) == c.Key[0] })
	case KindOrder:
		return part(&i.Order, c, raw, func(o *fleet.Order) bool { return string(o.Node) == c.Key[0] })
	case KindStatus:
		return part(&i.Status, c, raw, nil)
	case KindPending:
		return part(&i.Pending, c, raw, nil)
	}
	return nil
}

// part replaces one optional record. A removal only counts if mine reports that the current record
// has the removed key, because it may have moved to another node's key.
func part[T any](place **T, c *Change, raw store.Change, mine func(*T) bool) error {
	if *place != nil {
		c.Before = *place
	}
	if raw.Removed {
		if *place != nil && (mine == nil || mine(*place)) {
			*place = nil
		}
		return nil
	}
	v, err := store.DecodeNew[T](raw.KeyValue)
	if err != nil {
		return err
	}
	*place = v
	c.After = v
	return nil
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
