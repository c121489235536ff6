package place

// Slots returns the number of known nodes and the number of slots, including unused ones.
func (m *Model) Slots() (known, kept int) { return len(m.nodes), len(m.slots) }
