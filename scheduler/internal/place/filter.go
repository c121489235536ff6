package place

// Filter says whether a node may hold an instance, and what would make it fit.
type Filter struct {
	// Name stands in explanations.
	Name string
	Fits func(n *Node, q *question) bool
	// Fix is what would make this node fit.
	Fix func(n *Node, q *question) string
	// Near orders excluded nodes: the smallest is named in the explanation. Nil: any.
	Near func(n *Node, q *question) int
}

// The names of filters whose verdict changes with no event about a node or an
// instance that leaves: with the measured load or disk, and with one more of the group elsewhere.
const (
	FilterLoad     = "load"
	FilterTemplate = "template"
	FilterSpread   = "spread"
)

// The filters in the order they are asked: first where the instance's data is, then what
// the group and the node say of each other, then the room left, and at last the load and
// the spread, which look at other nodes too.
var (
	// standing depends on the plan and the node's own facts: it is judged anew only
	// when those change.
	standing = [...]Filter{sessionFilter, cordonFilter, nodeListFilter, runtimeFilter, labelFilter, capacityFilter}
	// room depends on what the node holds.
	room = [...]Filter{
		memoryFilter, cpuFilter, diskFilter, templateFilter, instancesFilter, ownFilter, aloneFilter, portFilter,
	}
)

// excludedBy is the first filter that excludes a node, nil when it fits.
func (q *question) excludedBy(n *Node) *Filter {
	if !pinFilter.Fits(n, q) {
		return &pinFilter
	}
	if f := firstOf(standing[:], n, q); f != nil {
		return f
	}
	if f := firstOf(room[:], n, q); f != nil {
		return f
	}
	if q.Pinned == "" && !loadFilter.Fits(n, q) {
		return &loadFilter
	}
	if !spreadFilter.Fits(n, q) {
		return &spreadFilter
	}
	return nil
}

// firstOf is the first of some filters that excludes a node, nil when none does.
func firstOf(some []Filter, n *Node, q *question) *Filter {
	for i := range some {
		if !some[i].Fits(n, q) {
			return &some[i]
		}
	}
	return nil
}
