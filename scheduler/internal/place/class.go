package place

import "github.com/orreryhq/orrery/libs/fleet"

// question is a request with what its plan says about nodes.
type question struct {
	*Request
	rules
	// ranking is nil as long as only requests were made that are pinned and not spread.
	ranking *ranking
	// skipsBusy is whether busy nodes are excluded: there is an alternative to them.
	skipsBusy bool
}

// classKey is what requests share that are judged alike. A plan never changes, so
// its address stands for its content, and the key keeps it from being reused.
type classKey struct {
	plan        *fleet.Plan
	group       fleet.GroupName
	templateMiB int
}

// class is the question of all requests of one plan, with the ranking of the nodes
// for it. All that is kept holds for each of them.
type class struct {
	question
	// seen is how many of the model's changes the ranking knows.
	seen int
	// used is when it was last asked, in requests to the model.
	used uint64
}

const (
	// keptNodes bounds the nodes in all classes together, minClasses and maxClasses the
	// classes kept whatever their number; past it the one used least recently goes.
	keptNodes              = 2 << 20
	minClasses, maxClasses = 16, 1024
	// maxChanges bounds the changes kept, beside a few per node; past it the older half
	// goes, with the classes that do not know it.
	maxChanges, maxChangesPerNode = 1024, 4
)

// touch notes that a node must be judged again.
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

// ask is the class of a request, abreast of all changes.
func (m *Model) ask(r *Request) *class {
	key := classKey{r.Plan, r.Group, r.TemplateMiB}
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

// rankNodes brings a class's ranking abreast of all changes.
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

// makeRoom lets the class go that was used least recently, when there are too many.
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
