package health

// tally counts consecutive results. It is pure.
type tally struct {
	// failures make a server unhealthy, and successes make it healthy again.
	failures, successes int
	unhealthy           bool
	run                 int
}

// add adds a result and reports whether the verdict has changed.
func (t *tally) add(ok bool) (changed bool) {
	if ok != t.unhealthy { // it confirms the verdict
		t.run = 0
		return false
	}
	t.run++
	needed := t.failures
	if t.unhealthy {
		needed = t.successes
	}
	if t.run < needed {
		return false
	}
	t.unhealthy, t.run = !t.unhealthy, 0
	return true
}
