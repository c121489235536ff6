package model

// The rules that must always hold.
const (
	OnlyOwnersWrite        = "only the holder of the shard key writes for the shard"
	OnlySessionsReport     = "only the holder of the node's session writes its statuses"
	PlacedOnce             = "an instance is placed on one node at a time"
	RoomOnce               = "a node's room is given once"
	NothingStoppedIsPlaced = "nothing is placed that was stopped or went on meanwhile"
	OneCopy                = "at most one copy of an exclusive instance runs"
	StatusGoesOn           = "no status goes back to an earlier generation, or to life after its end"
	OfflineMeansLost       = "OFFLINE is written only while the node has no session"
)

// Broken names the rule that a state breaks, or returns "".
func (m *Model) Broken(s State) string {
	for i := range m.cfg.Instances {
		placed, live := 0, 0
		for n := range m.cfg.Nodes {
			if s.keys.placement[n][i].mod != 0 {
				placed++
			}
			if s.host[n].runs[i].lives != 0 {
				live++
			}
		}
		switch {
		case live > 1 && !m.cfg.Ordinary:
			return OneCopy
		case placed > 1:
			return PlacedOnce
		}
	}
	for n := range m.cfg.Nodes {
		if s.keys.used(n, maxInstances) > 1 {
			return RoomOnce
		}
	}
	return ""
}

// Goal reports whether an instance runs and its record says so. Without agents, it reports
// whether a placed instance still runs as far as the records say, or all were stopped.
func (m *Model) Goal(s State) bool {
	stopped := 0
	for i := range m.cfg.Instances {
		in := s.keys.intent[i]
		if in.stopped {
			stopped++
		}
		for n := range m.cfg.Nodes {
			if !m.cfg.Agents && s.keys.placement[n][i].gen == in.gen && s.keys.holdsNode(n, i) {
				return true
			}
			h, r := &s.host[n], &s.host[n].runs[i]
			st := s.keys.status[i]
			if r.lives != 0 && !r.dying && st.is == online && st.gen == r.lives && h.session != 0 && h.session == s.keys.session[n] {
				return true
			}
		}
	}
	return stopped == m.cfg.Instances
}

// badStatus names the rule that a status breaks by replacing another one.
func badStatus(old status, g gen, is state) string {
	if g < old.gen || g == old.gen && old.is == ended && is != ended {
		return StatusGoesOn
	}
	return ""
}

// holdsNode reports whether a placement still occupies its node, like
// fleet.Instance.HoldsNode.
func (k *records) holdsNode(n, i int) bool {
	p, st := k.placement[n][i], k.status[i]
	return p.mod != 0 && (st.gen < p.gen || st.is != ended)
}

// used counts the instances that occupy a node, except for one.
func (k *records) used(n, but int) int {
	used := 0
	for i := range maxInstances {
		if i != but && k.holdsNode(n, i) {
			used++
		}
	}
	return used
}

// placed returns the node on which an instance is placed. ok is false when it is not
// placed.
func (k *records) placed(i int) (n int, ok bool) {
	for n := range maxNodes {
		if k.placement[n][i].mod != 0 {
			return n, true
		}
	}
	return 0, false
}
