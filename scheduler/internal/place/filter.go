package place

// Filter says whether a node may hold an instance, and what would make it fit.
type Filter struct {
	// Name stands in explanations.
	Name string
	Fits func(n *Node, r *Request) bool
	// Fix is what would make this node fit.
	Fix func(n *Node, r *Request) string
	// Near orders excluded nodes: the smallest is named in the explanation. Nil: any.
	Near func(n *Node, r *Request) int
}

// filters are all filters in the order they are asked.
var filters = [...]Filter{
	sessionFilter, cordonFilter, pinFilter, nodeListFilter, runtimeFilter, labelFilter,
	memoryFilter, cpuFilter, diskFilter, portFilter,
}

// excludedBy is the first filter that excludes a node, nil when it fits.
func excludedBy(n *Node, r *Request) *Filter {
	for i := range filters {
		if !filters[i].Fits(n, r) {
			return &filters[i]
		}
	}
	return nil
}
