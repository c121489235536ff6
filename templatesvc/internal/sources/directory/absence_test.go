package directory

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

// folder is a directory of configurations. Each name that appears or disappears is a
// change; quiet is the time since the last one.
type folder struct {
	there   map[string]bool
	changes int
	quiet   time.Time
}

// declaring runs declarations from folders at one path, with a fake clock.
type declaring struct {
	now      time.Time
	folders  []*folder
	at       int
	recorded map[string]string // the place of each declared name that is not removed
	last     absence
}

// look reads the folder at the path to its end and returns the removed names.
func (d *declaring) look() []string {
	f, place := d.folders[d.at], fmt.Sprint(d.at)
	if len(f.there) == 0 { // an error
		d.last = absence{}
		return nil
	}
	known := map[string]bool{}
	for name, at := range d.recorded {
		known[name] = at == place
	}
	p := plan{place: place, declared: []declaration{{noun: "groups", removal: cluster.DecideRemoval(known, func(name string) bool { return f.there[name] }, false)}}}
	p.settle(d.last, fmt.Sprint(f.changes), settling, d.now)
	d.last = p.gone
	if p.held() {
		return nil
	}
	for name := range f.there {
		d.recorded[name] = place
	}
	gone := p.declared[0].removal.Go
	for _, name := range gone {
		delete(d.recorded, name)
	}
	return gone
}

// change adds a file, or removes it if it exists.
func (d *declaring) change(name string) {
	f := d.folders[d.at]
	if f.there[name] {
		delete(f.there, name)
	} else {
		f.there[name] = true
	}
	f.changes++
	f.quiet = d.now
}

func TestNothingGoesThatWasNotMissingForAMinuteInADirectoryThatHadIt(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	rapid.Check(t, func(t *rapid.T) {
		d := &declaring{now: time.Unix(1_000_000, 0), recorded: map[string]string{}}
		for range 2 {
			f := &folder{there: map[string]bool{}, quiet: d.now}
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "files") {
				f.there[name] = true
			}
			d.folders = append(d.folders, f)
		}
		first := map[int]time.Time{} // the time of the first look at each directory in its current state
		look := func() {
			f, at := d.folders[d.at], d.at
			before, missed := maps.Clone(d.recorded), first[at]
			if missed.IsZero() {
				first[at] = d.now
			}
			for _, name := range d.look() {
				switch {
				case f.there[name]:
					t.Fatalf("%s goes and is there", name)
				case before[name] != fmt.Sprint(at):
					t.Fatalf("%s goes, which this directory never had", name)
				case d.now.Sub(f.quiet) < settling, missed.IsZero(), d.now.Sub(missed) < settling:
					t.Fatalf("%s goes at %v, the directory is as it is since %v, and was looked at first at %v", name, d.now, f.quiet, missed)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"look":        func(*rapid.T) { look() },
			"come and go": func(t *rapid.T) { d.change(rapid.SampledFrom(names).Draw(t, "name")); delete(first, d.at) },
			"a while": func(t *rapid.T) {
				d.now = d.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			},
			"elsewhere": func(*rapid.T) { d.at = 1 - d.at },
			"restart":   func(*rapid.T) { d.last = absence{} },
		})
		// Everything that disappeared is removed in time, unless it is more than
		// cluster.FewRemoved.
		f := d.folders[d.at]
		if len(f.there) == 0 {
			return
		}
		look()
		d.now = d.now.Add(settling)
		look()
		var missing []string
		for name, at := range d.recorded {
			if at == fmt.Sprint(d.at) && !f.there[name] {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 && len(missing) <= cluster.FewRemoved {
			t.Fatalf("%v stay", missing)
		}
	})
}

func TestAFileIsBackBeforeItsConfigurationGoes(t *testing.T) {
	second := func(n int) func(*declaring) {
		return func(d *declaring) { d.now = d.now.Add(time.Duration(n) * time.Second) }
	}
	change := func(names ...string) func(*declaring) {
		return func(d *declaring) {
			for _, name := range names {
				d.change(name)
			}
		}
	}
	elsewhere := func(d *declaring) { d.at = 1 - d.at }
	restart := func(d *declaring) { d.last = absence{} }
	look := func(d *declaring) { d.look() }
	for name, c := range map[string]struct {
		steps []func(*declaring)
		goes  []string // those of a, b, c and d that one more look removes
	}{
		"one look":                            {[]func(*declaring){change("a")}, nil},
		"two looks at once":                   {[]func(*declaring){change("a"), look}, nil},
		"two looks, a minute apart":           {[]func(*declaring){change("a"), look, second(60)}, []string{"a"}},
		"a minute apart, and one between":     {[]func(*declaring){change("a"), look, second(30), look, second(30)}, []string{"a"}},
		"a minute, but no look":               {[]func(*declaring){change("a"), second(3600)}, nil},
		"back, and gone again":                {[]func(*declaring){change("a"), look, second(59), change("a"), change("a"), second(1)}, nil},
		"files are still coming":              {[]func(*declaring){change("a"), look, second(40), change("new"), second(40), look, second(40)}, nil},
		"four, slowly, and four more":         {[]func(*declaring){change("a"), look, second(50), change("b"), look, second(50), change("c"), look, second(50)}, nil},
		"the same, then left alone":           {[]func(*declaring){change("a"), look, second(50), change("b"), look, second(60)}, []string{"a", "b"}},
		"a start between":                     {[]func(*declaring){change("a"), look, second(60), restart}, nil},
		"a start, and another minute":         {[]func(*declaring){change("a"), look, second(60), restart, look, second(60)}, []string{"a"}},
		"another directory, with fewer files": {[]func(*declaring){elsewhere, look, second(60), look, second(3600)}, nil},
		"another directory, and back":         {[]func(*declaring){change("a"), look, elsewhere, second(60), look, elsewhere}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := &declaring{now: time.Unix(1_000_000, 0), recorded: map[string]string{}, folders: []*folder{
				{there: map[string]bool{"a": true, "b": true, "c": true, "d": true}}, {there: map[string]bool{"d": true}},
			}}
			d.look()
			for _, step := range c.steps {
				step(d)
			}
			if got := d.look(); !slices.Equal(got, c.goes) {
				t.Errorf("%v go, want %v", got, c.goes)
			}
		})
	}
}
