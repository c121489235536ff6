package place

// Slots is how many nodes a model keeps something of, those whose place is unused included.
func (m *Model) Slots() (known, kept int) { return len(m.nodes), len(m.slots) }
