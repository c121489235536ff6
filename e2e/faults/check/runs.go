package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/e2e/faults/record"
)

// StaticOverlaps returns runs of one static instance that lived at the same time, by their
// own record or because the instance's lock was held.
func StaticOverlaps(runs []record.Run) []string {
	var out []string
	static := slices.DeleteFunc(slices.Clone(runs), func(r record.Run) bool { return !r.Static })
	for _, r := range static {
		if _, refused := r.Has(record.Refused); refused {
			out = append(out, fmt.Sprintf("two holders: %v started while another run of %s lived", r, r.Name))
		}
	}
	for _, pair := range overlapping(static, func(r record.Run) string { return r.Name }) {
		out = append(out, fmt.Sprintf("two holders: %v and %v lived at the same time", pair[0], pair[1]))
	}
	return out
}

// PortClashes returns ports that two runs on one node had at the same time.
func PortClashes(runs []record.Run) []string {
	var out []string
	ported := slices.DeleteFunc(slices.Clone(runs), func(r record.Run) bool { return r.Port == 0 })
	for _, r := range ported {
		if _, taken := r.Has(record.PortTaken); taken {
			out = append(out, fmt.Sprintf("port taken: %v could not listen on %d", r, r.Port))
		}
	}
	for _, pair := range overlapping(ported, func(r record.Run) string { return fmt.Sprint(r.Node, ":", r.Port) }) {
		out = append(out, fmt.Sprintf("port twice: %v and %v had port %d at the same time", pair[0], pair[1], pair[0].Port))
	}
	return out
}

// WrongFiles returns runs whose directory differed from their template.
func WrongFiles(runs []record.Run) []string {
	var out []string
	for _, r := range runs {
		if _, wrong := r.Has(record.WrongFiles); wrong {
			out = append(out, fmt.Sprintf("wrong files: %v does not have what its template holds", r))
		}
	}
	return out
}

// Arrival is a move that ended on its target, after the data was copied there.
type Arrival struct {
	Name, Source, Target string
	// Copied is when the recorder saw that the copy was complete.
	Copied record.Time
}

// DataLosses returns runs of static instances that found less in their directory than the
// previous run had left. Runs on different nodes are compared only if the instance was moved
// from one to the other between them.
func DataLosses(runs []record.Run, moves []Arrival) []string {
	var out []string
	last := map[string]record.Run{}   // by name and node
	latest := map[string]record.Run{} // by name
	for _, r := range byStart(runs) {
		from := latest[r.Name]
		latest[r.Name] = r
		if slices.ContainsFunc(moves, func(a Arrival) bool {
			return a.Name == r.Name && a.Source == from.Node && a.Target == r.Node && from.Started < a.Copied
		}) {
			last[r.Name+" on "+r.Node] = from
			delete(last, r.Name+" on "+from.Node) // what is there is set aside
		}
		key := r.Name + " on " + r.Node
		before, ok := last[key]
		left := before.Earlier
		if !before.Unsaved {
			left++
		}
		if ok && r.Static && r.Earlier < left {
			out = append(out, fmt.Sprintf("data lost: %v found %d earlier runs in its directory, %v before it had found %d", r, r.Earlier, before, before.Earlier))
		}
		last[key] = r
	}
	return out
}

// overlapping returns pairs of runs with the same key that lived at the same time.
func overlapping(runs []record.Run, key func(record.Run) string) [][2]record.Run {
	var out [][2]record.Run
	longest := map[string]record.Run{} // by key, the longest-lived run so far
	for _, r := range byStart(runs) {
		k := key(r)
		before, ok := longest[k]
		if ok && r.Started <= before.Alive {
			out = append(out, [2]record.Run{before, r})
		}
		if !ok || r.Alive > before.Alive {
			longest[k] = r
		}
	}
	return out
}

func byStart(runs []record.Run) []record.Run {
	return slices.SortedFunc(slices.Values(runs), func(a, b record.Run) int { return cmp.Compare(a.Started, b.Started) })
}
