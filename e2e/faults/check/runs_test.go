package check_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/faults/check"
	"github.com/orreryhq/orrery/e2e/faults/record"
)

// lived returns a run of a static instance "world-1" on node-1 with port 1.
func lived(from, to record.Time, edit ...func(*record.Run)) record.Run {
	r := record.Run{
		Header: record.Header{Instance: "aaaaaa", Name: "world-1", Group: "world", Node: "node-1", PID: int(from), Port: 1, Static: true, Started: from},
		Alive:  to,
	}
	for _, e := range edit {
		e(&r)
	}
	return r
}

func named(name string) func(*record.Run) { return func(r *record.Run) { r.Name = name } }
func on(node string) func(*record.Run)    { return func(r *record.Run) { r.Node = node } }
func port(p int) func(*record.Run)        { return func(r *record.Run) { r.Port = p } }
func dynamic(r *record.Run)               { r.Static = false }
func earlier(n int) func(*record.Run)     { return func(r *record.Run) { r.Earlier = n } }
func noted(e record.Event) func(*record.Run) {
	return func(r *record.Run) { r.Notes = append(r.Notes, record.Note{At: r.Started, Event: e}) }
}

// losses checks for lost data after moves.
func losses(moves ...check.Arrival) func([]record.Run) []string {
	return func(runs []record.Run) []string { return check.DataLosses(runs, moves) }
}

// arrival is a move of world-1 from node-1 to node-2.
func arrival(copied record.Time) check.Arrival {
	return check.Arrival{Name: "world-1", Source: "node-1", Target: "node-2", Copied: copied}
}

func TestWhatRunsMayNotDo(t *testing.T) {
	for name, c := range map[string]struct {
		check func([]record.Run) []string
		runs  []record.Run
		want  string // the beginning of the only sentence; empty for none
	}{
		"one run after the other": {check.StaticOverlaps, []record.Run{lived(1, 5), lived(6, 9)}, ""},
		"two runs at once":        {check.StaticOverlaps, []record.Run{lived(1, 5), lived(5, 9)}, "two holders"},
		"one run within another":  {check.StaticOverlaps, []record.Run{lived(1, 9), lived(3, 4)}, "two holders"},
		"a long run after a short one within it": {
			check.StaticOverlaps, []record.Run{lived(1, 9), lived(10, 30), lived(20, 21)}, "two holders",
		},
		"two on different nodes":       {check.StaticOverlaps, []record.Run{lived(1, 5), lived(3, 9, on("node-2"))}, "two holders"},
		"two instances at once":        {check.StaticOverlaps, []record.Run{lived(1, 5), lived(3, 9, named("world-2"))}, ""},
		"two runs that are not static": {check.StaticOverlaps, []record.Run{lived(1, 5, dynamic), lived(3, 9, dynamic)}, ""},
		"a lock that was held":         {check.StaticOverlaps, []record.Run{lived(1, 5, noted(record.Refused))}, "two holders"},

		"a port after the other":     {check.PortClashes, []record.Run{lived(1, 5), lived(6, 9, named("x-1"))}, ""},
		"a port twice":               {check.PortClashes, []record.Run{lived(1, 5), lived(2, 9, named("x-1"))}, "port twice"},
		"a port on two nodes":        {check.PortClashes, []record.Run{lived(1, 5), lived(2, 9, on("node-2"))}, ""},
		"no port twice":              {check.PortClashes, []record.Run{lived(1, 5, port(0)), lived(2, 9, port(0))}, ""},
		"a port somebody else had":   {check.PortClashes, []record.Run{lived(1, 5, noted(record.PortTaken))}, "port taken"},
		"data that stays":            {losses(), []record.Run{lived(1, 5), lived(6, 9, earlier(1))}, ""},
		"data that is gone":          {losses(), []record.Run{lived(1, 5, earlier(1)), lived(6, 9)}, "data lost"},
		"data of another node":       {losses(), []record.Run{lived(1, 5, earlier(1)), lived(6, 9, on("node-2"))}, ""},
		"no data where none stays":   {losses(), []record.Run{lived(1, 5, dynamic), lived(6, 9, dynamic)}, ""},
		"data that did not grow":     {losses(), []record.Run{lived(1, 5, earlier(3)), lived(6, 9, earlier(3))}, "data lost"},
		"data that was moved":        {losses(arrival(6)), []record.Run{lived(1, 5, earlier(3)), lived(7, 9, earlier(4), on("node-2"))}, ""},
		"data that stayed behind":    {losses(arrival(6)), []record.Run{lived(1, 5, earlier(3)), lived(7, 9, on("node-2"))}, "data lost"},
		"data of a run after a move": {losses(arrival(6)), []record.Run{lived(7, 9, earlier(3)), lived(10, 12, on("node-2"))}, ""},
		"data that was set aside": {
			losses(arrival(6)), []record.Run{lived(1, 5, earlier(3)), lived(7, 9, earlier(4), on("node-2")), lived(10, 12)}, "",
		},
		"data that could not be saved": {
			losses(), []record.Run{lived(1, 5, earlier(3), func(r *record.Run) { r.Unsaved = true }), lived(6, 9, earlier(3))}, "",
		},
		"files of a template":       {check.WrongFiles, []record.Run{lived(1, 5)}, ""},
		"files of no template":      {check.WrongFiles, []record.Run{lived(1, 5, noted(record.WrongFiles))}, "wrong files"},
		"runs in any order of file": {losses(), []record.Run{lived(6, 9, earlier(1)), lived(1, 5)}, ""},
	} {
		t.Run(name, func(t *testing.T) { one(t, c.check(c.runs), c.want) })
	}
}

// one checks for one sentence with the given beginning, or none.
func one(t *testing.T, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("found %q where nothing is wrong", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("found %q, want one %q", got, want)
	}
}
