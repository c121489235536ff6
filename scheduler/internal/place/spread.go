package place

// value is one value of the spread label.
type value struct {
	name string
	// count is how many of the group's instances its nodes hold.
	count int
	// nodes counts the nodes with this value; couldHold counts those that could hold an
	// instance of the group if they were empty.
	nodes, couldHold int
	// fits holds the nodes that fit now; top is the best of them, as recorded in the level.
	fits heap
	top  *Node
	// unlabelled marks the value for nodes without the label. It is in no level.
	unlabelled bool
}

func (v *value) join(n *known) {
	v.nodes++
	if n.couldHold {
		v.couldHold++
	}
}

func (v *value) part(n *known) {
	v.nodes--
	v.count -= int(n.own)
	if n.couldHold {
		v.couldHold--
	}
}

// valueFor returns the index of a node's value and creates a missing value.
func (k *ranking) valueFor(n *Node) int32 {
	key := k.class.Plan.Where.Spread
	name, ok := n.Labels[key]
	if key == "" || !ok {
		return noValue
	}
	if at, ok := k.index[name]; ok {
		return at
	}
	at := int32(len(k.values))
	if last := len(k.unused) - 1; last >= 0 {
		at, k.unused = k.unused[last], k.unused[:last]
	} else {
		k.values = append(k.values, value{})
	}
	k.values[at].name = name
	k.index[name] = at
	return at
}

// valueOf returns the index of a judged node's value.
func (k *ranking) valueOf(n *Node) int32 { return max(noValue, k.known[n.slot].value) }

// count returns how many of the group's instances a judged node's value has.
func (k *ranking) count(n *Node) int { return k.values[k.valueOf(n)].count }

// fewest returns the lowest number of instances among the values that limit the skew. These
// are the values with a node that could hold an instance if it were empty. Kubernetes
// counts the same way: it looks at what a node may take, not at what is free. So a value
// with full nodes limits the others, and a value whose nodes are all lost, cordoned or too
// small does not.
func (k *ranking) fewest() int {
	for i := range k.levels {
		if k.levels[i].binding > 0 {
			return k.levels[i].count
		}
	}
	return 0
}

// emptiest returns the name of a value with the fewest instances.
func (k *ranking) emptiest() (name string) {
	fewest := k.fewest()
	for i := 1; i < len(k.values); i++ {
		if v := &k.values[i]; v.couldHold > 0 && v.count == fewest && (name == "" || v.name < name) {
			name = v.name
		}
	}
	return name
}

// admits reports whether the maximum skew allows one more instance under a value. It never
// allows nodes without the label.
func (k *ranking) admits(value int32) bool {
	return !k.class.skewed() || value != noValue && k.admitsCount(k.values[value].count)
}

// admitsCount is admits for a labelled value with count instances. It checks count + 1 -
// fewest <= MaxSkew.
func (k *ranking) admitsCount(count int) bool {
	return !k.class.skewed() || count-k.fewest() < k.class.Plan.Where.MaxSkew
}

// spreadPart returns the spread part of the score for a value: its weight times 1 -
// count/count of the fullest value. Nodes without the label get the whole weight. So do all
// nodes when the plan has no spread label or the group has no instance yet.
func (k *ranking) spreadPart(value int32) int64 {
	if value == noValue {
		return k.spreadOf(0)
	}
	return k.spreadOf(k.values[value].count)
}

func (k *ranking) spreadOf(count int) int64 {
	fullest := 0
	if len(k.levels) > 0 {
		fullest = k.levels[len(k.levels)-1].count
	}
	return k.class.weights.of(partSpread, 1-float64(count)/float64(max(1, fullest)))
}

// spreadPart returns the spread part of a node's score.
func (q *question) spreadPart(n *Node) int64 {
	if q.ranking == nil {
		return q.weights.of(partSpread, 1)
	}
	return q.ranking.spreadPart(q.ranking.valueOf(n))
}
