package health

// tally counts answers in a row: a pure decider.
type tally struct {
	// failures make well sick, successes sick well.
	failures, successes int
	sick                bool
	run                 int
}

// hear takes an answer and reports whether the verdict has changed.
func (t *tally) hear(ok bool) (changed bool) {
	if ok != t.sick { // it says what is known
		t.run = 0
		return false
	}
	t.run++
	needed := t.failures
	if t.sick {
		needed = t.successes
	}
	if t.run < needed {
		return false
	}
	t.sick, t.run = !t.sick, 0
	return true
}
