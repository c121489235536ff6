package guard

// Forsake leaves the guard without an instance, as an agent does that dies: it ends
// whatever it finds of it.
func (g *Guard) Forsake() {
	_ = g.tell.Close()
	g.tell = nil
}
