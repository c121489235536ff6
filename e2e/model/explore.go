package model

import (
	"fmt"
	"hash/maphash"
)

// Machine is what Explore walks: an initial state and the steps from each state. Next must
// emit the same steps in the same order for the same state.
type Machine[S comparable] interface {
	Start() S
	Next(s S, emit func(Step[S]))
	// Broken names the rule that a state breaks, or returns "".
	Broken(s S) string
	// Goal reports whether a state is a goal. A goal must be reachable from every state.
	Goal(s S) bool
	// Forget removes from a state what can have no effect any more.
	Forget(s S) S
	// Rename brings states that differ only in names into one canonical form.
	Rename(s S) S
}

// Step is one possible step.
type Step[S comparable] struct {
	To   S
	Says Sentence
	// Fault marks a step that must not be relied on. Paths to a goal contain no faults.
	Fault bool
	// Broken names the rule that the step breaks, or is "".
	Broken string
}

// Sentence describes a step. It is formatted only on demand.
type Sentence struct {
	form string
	args [3]fmt.Stringer
}

func say(form string, args ...fmt.Stringer) (s Sentence) {
	s.form = form
	copy(s.args[:], args)
	return s
}

// String returns the sentence without a full stop.
func (s Sentence) String() string {
	var args []any
	for _, a := range s.args {
		if a != nil {
			args = append(args, a)
		}
	}
	return fmt.Sprintf(s.form, args...)
}

// Result is the result of Explore.
type Result struct {
	// States and Steps count what was explored. When a rule is broken, they count what was
	// explored until then.
	States, Steps int
	// Depth is the distance of the farthest state from the start.
	Depth int
	// Broken is the broken rule, or "".
	Broken string
	// Trace is a shortest sequence of steps that breaks it, one sentence per step.
	Trace []string
	// Cut means that the limit was reached, so that the verdict covers only the explored
	// states.
	Cut bool
}

// Trapped is the rule that is broken by a state from which no goal can be reached without a
// fault.
const Trapped = "it always gets well when nothing more fails"

// Explore walks the states breadth-first, so that its trace is a shortest one. It visits at
// most limit states. It distinguishes states by 128 bits of their hash.
func Explore[S comparable](m Machine[S], limit int) Result {
	e := &explorer[S]{m: m, limit: limit, seen: map[fingerprint]int32{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	e.walk()
	if e.result.Broken == "" && !e.result.Cut {
		e.findTrap()
	}
	return e.result
}

type fingerprint [2]uint64

// origin says how a state was first reached: its predecessor, and the index of the step
// from there.
type origin struct {
	from int32
	step int32
}

type edge struct{ from, to int32 }

type explorer[S comparable] struct {
	m      Machine[S]
	limit  int
	seeds  [2]maphash.Seed
	seen   map[fingerprint]int32
	came   []origin
	goals  []int32
	edges  []edge // edges that are not faults
	result Result
}

// add numbers a state. fresh is false when it was already known.
func (e *explorer[S]) add(s S, from origin) (id int32, fresh bool) {
	f := fingerprint{maphash.Comparable(e.seeds[0], s), maphash.Comparable(e.seeds[1], s)}
	if id, ok := e.seen[f]; ok {
		return id, false
	}
	id = int32(len(e.came))
	e.seen[f] = id
	e.came = append(e.came, from)
	if e.m.Goal(s) {
		e.goals = append(e.goals, id)
	}
	return id, true
}

func (e *explorer[S]) walk() {
	start := e.merge(e.m.Start())
	e.add(start, origin{from: -1})
	level, first := []S{start}, int32(0)
	for len(level) > 0 {
		var next []S
		for n, s := range level {
			id := first + int32(n)
			if next = e.follow(s, id, next); e.result.Broken != "" || e.result.Cut {
				e.result.States = len(e.came)
				return
			}
		}
		first += int32(len(level))
		level = next
		if len(level) > 0 {
			e.result.Depth++
		}
	}
	e.result.States = len(e.came)
}

// follow takes all steps from a state and appends the new states to next.
func (e *explorer[S]) follow(s S, id int32, next []S) []S {
	var ordinal int32
	e.m.Next(s, func(step Step[S]) {
		here := origin{id, ordinal}
		ordinal++
		if e.result.Broken != "" || e.result.Cut {
			return
		}
		e.result.Steps++
		if step.Broken != "" {
			e.broken(step.Broken, here)
			return
		}
		to := e.merge(step.To)
		at, fresh := e.add(to, here)
		if !step.Fault && at != id {
			e.edges = append(e.edges, edge{id, at})
		}
		if !fresh {
			return
		}
		if rule := e.m.Broken(to); rule != "" {
			e.broken(rule, here)
			return
		}
		next = append(next, to)
		e.result.Cut = len(e.came) >= e.limit
	})
	return next
}

func (e *explorer[S]) merge(s S) S { return e.m.Rename(e.m.Forget(s)) }

func (e *explorer[S]) broken(rule string, last origin) {
	e.result.Broken, e.result.Trace = rule, e.trace(last)
}

// trace replays the path that ends with a step. It does not rename states, so that the
// numbers in the sentences are consistent.
func (e *explorer[S]) trace(last origin) []string {
	var way []int32
	for o := last; o.from >= 0; o = e.came[o.from] {
		way = append(way, o.step)
	}
	var told []string
	s := e.m.Forget(e.m.Start())
	for n := len(way) - 1; n >= 0; n-- {
		var ordinal int32
		var taken Step[S]
		e.m.Next(s, func(step Step[S]) {
			if ordinal == way[n] {
				taken = step
			}
			ordinal++
		})
		told = append(told, taken.Says.String())
		s = e.m.Forget(taken.To)
	}
	return told
}

// findTrap searches backwards from the goals, without faults. The first state that it does
// not reach is a trap.
func (e *explorer[S]) findTrap() {
	into := make([]int32, len(e.came)+1) // where the predecessors of each state begin
	for _, d := range e.edges {
		into[d.to+1]++
	}
	for n := range e.came {
		into[n+1] += into[n]
	}
	before := make([]int32, len(e.edges))
	fill := append([]int32(nil), into...)
	for _, d := range e.edges {
		before[fill[d.to]] = d.from
		fill[d.to]++
	}
	safe := make([]bool, len(e.came))
	todo := append([]int32(nil), e.goals...)
	for _, g := range todo {
		safe[g] = true
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range before[into[at]:into[at+1]] {
			if !safe[p] {
				safe[p] = true
				todo = append(todo, p)
			}
		}
	}
	for n, ok := range safe {
		if !ok {
			e.broken(Trapped, e.came[n])
			return
		}
	}
}
