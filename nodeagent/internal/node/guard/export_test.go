package guard

// Forsake closes the guard's input without an identity, like an agent that dies.
func (g *Guard) Forsake() {
	_ = g.stdin.Close()
	g.stdin = nil
}
