package place

// value is a value of the spread label.
type value struct {
	name string
	// count is how many of the group's instances hold room on its nodes.
	count int
	// nodes have the label's value; couldHold of them could hold an instance of the group
	// if they were empty.
	nodes, couldHold int
	// fits are the nodes that fit now, top the best of them as it stands in a level.
	fits heap
	top  *Node
	// unlabelled is true of the nodes without the label, which are in no level.
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

// valueFor is where a node's value stands, made when it is new.
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

// valueOf is where a judged node's value stands.
func (k *ranking) valueOf(n *Node) int32 { return max(noValue, k.known[n.slot].value) }

// count is how many of the group's instances a judged node's value has.
func (k *ranking) count(n *Node) int { return k.values[k.valueOf(n)].count }

// fewest is how many instances the emptiest has of the values that bind a maximum
// skew: those of which a node could hold an instance if it were empty. That is how
// Kubernetes counts, which looks at what a node may take and not at what is free: a
// value whose nodes are full holds the others back, one whose nodes are lost, cordoned
// or too small does not.
func (k *ranking) fewest() int {
	for i := range k.levels {
		if k.levels[i].binding > 0 {
			return k.levels[i].count
		}
	}
	return 0
}

// emptiest is the name of a value that has so few.
func (k *ranking) emptiest() (name string) {
	fewest := k.fewest()
	for i := 1; i < len(k.values); i++ {
		if v := &k.values[i]; v.couldHold > 0 && v.count == fewest && (name == "" || v.name < name) {
			name = v.name
		}
	}
	return name
}

// admits reports whether one more instance under a value keeps to the maximum skew.
// Nodes without the label are not admitted.
func (k *ranking) admits(value int32) bool {
	return !k.class.skewed() || value != noValue && k.admitsCount(k.values[value].count)
}

// admitsCount is admits for a labelled value with a number of instances:
// count + 1 - fewest <= MaxSkew.
func (k *ranking) admitsCount(count int) bool {
	return !k.class.skewed() || count-k.fewest() < k.class.Plan.Where.MaxSkew
}

// spreadPart is what the score has for a value: its weight, less the share of its
// instances in those of the fullest. Nodes without the label, and all when there is
// no such label or no instance yet, have the whole weight.
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

// spreadPart is the part of a node's score for the spread.
func (q *question) spreadPart(n *Node) int64 {
	if q.ranking == nil {
		return q.weights.of(partSpread, 1)
	}
	return q.ranking.spreadPart(q.ranking.valueOf(n))
}
