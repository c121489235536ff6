package place

import (
	"github.com/orreryhq/orrery/libs/fleet"
)

// question is a request together with its plan's parsed rules.
type question struct {
	*Request
	rules
	// ranking is nil until the class gets a request that is not pinned or whose group is
	// spread.
	ranking *ranking
	// skipsBusy means that busy nodes are excluded, because other nodes could hold the
	// instance.
	skipsBusy bool
}

// classKey identifies requests that get the same verdict for each node. A plan never
// changes, so its address identifies its content. Holding the pointer keeps the address
// from being reused.
type classKey struct {
	plan        *fleet.Plan
	group       fleet.GroupName
	templateMiB int
	leaves      fleet.NodeID
}

// class caches the question of all requests with one key, together with a ranking of the
// nodes for it.
type class struct {
	question
	// seen is the number of entries of Model.changed that the ranking includes.
	seen int
	// used is the value of Model.asked when the class was last used.
	used uint64
}

const (
	// keptNodes bounds the nodes in the rankings of all classes together. minClasses and
	// maxClasses bound the number of classes regardless of that. Above the bound, the model
	// drops the least recently used class.
	keptNodes              = 2 << 20
	minClasses, maxClasses = 16, 1024
	// maxChanges plus maxChangesPerNode for each node bounds Model.changed. Above it, the
	// model drops the older half and the classes that have not caught up with it.
	maxChanges, maxChangesPerNode = 1024, 4
)

// touch records that the rankings must judge a node again.
func (m *Model) touch(n *Node) {
	if len(m.classes) == 0 {
		return
	}
	if len(m.changed) >= maxChanges+maxChangesPerNode*len(m.slots) {
		m.forgetOldest()
	}
	m.changed = append(m.changed, n.slot)
}

func (m *Model) forgetOldest() {
	half := len(m.changed) / 2
	m.changed = append(m.changed[:0], m.changed[half:]...)
	for key, c := range m.classes {
		if c.seen -= half; c.seen < 0 {
			delete(m.classes, key)
		}
	}
}

// ask returns the class of a request, up to date with all changes.
func (m *Model) ask(r *Request) *class {
	key := classKey{r.Plan, r.Group, r.TemplateMiB, r.Leaves}
	c, ok := m.classes[key]
	if !ok {
		m.makeRoom()
		c = &class{question: question{Request: r, rules: readRules(r.Plan)}, seen: len(m.changed)}
		m.classes[key] = c
	}
	m.asked++
	c.Request, c.used = r, m.asked
	if c.problem == "" && (r.Pinned == "" || r.Plan.Where.Spread != "" || c.ranking != nil) {
		m.rankNodes(c)
	}
	return c
}

// rankNodes brings the ranking of a class up to date with all changes.
func (m *Model) rankNodes(c *class) {
	if c.ranking == nil || len(m.changed)-c.seen > len(m.joined) {
		c.ranking = newRanking(c, m)
	} else {
		for _, slot := range m.changed[c.seen:] {
			c.ranking.judge(m.slots[slot])
		}
	}
	c.ranking.weighLoad(m.joined)
	c.seen = len(m.changed)
}

// makeRoom drops the least recently used class when there are too many.
func (m *Model) makeRoom() {
	most := max(minClasses, min(maxClasses, keptNodes/max(1, len(m.slots))))
	if len(m.classes) < most {
		return
	}
	var oldest classKey
	var used uint64
	for key, c := range m.classes {
		if used == 0 || c.used < used {
			oldest, used = key, c.used
		}
	}
	delete(m.classes, oldest)
}
