package place

// Filter decides whether a node may hold an instance, and says what would make it fit.
type Filter struct {
	// Name appears in explanations.
	Name string
	Fits func(n *Node, q *question) bool
	// Fix says what would make this node fit.
	Fix func(n *Node, q *question) string
	// Near orders excluded nodes: the explanation names the one with the smallest value.
	// Nil means any.
	Near func(n *Node, q *question) int
}

// Names of the filters whose verdict may change although no node changed and no instance
// left. Their verdict depends on the measured load or disk, or on the group's instances
// elsewhere.
const (
	FilterLoad     = "load"
	FilterTemplate = "template"
	FilterSpread   = "spread"
)

// The filters in order of evaluation: the location of the instance's data, then the rules
// of group and node, then the free resources. Load and spread come last because they also
// depend on other nodes.
var (
	// standing filters depend only on the class and the node's own facts. A ranking
	// evaluates them again only when those change.
	standing = [...]Filter{sessionFilter, cordonFilter, sourceFilter, nodeListFilter, runtimeFilter, labelFilter, capacityFilter, policyFilter}
	// room filters depend on what the node holds.
	room = [...]Filter{
		memoryFilter, cpuFilter, diskFilter, templateFilter, instancesFilter, ownFilter, aloneFilter, portFilter,
	}
)

// excludedBy returns the first filter that excludes a node, or nil when the node fits.
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

// firstOf returns the first of some filters that excludes a node, or nil when none does.
func firstOf(some []Filter, n *Node, q *question) *Filter {
	for i := range some {
		if !some[i].Fits(n, q) {
			return &some[i]
		}
	}
	return nil
}
