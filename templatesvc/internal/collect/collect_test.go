package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
)

// register is what etcd knows in these tests: versions by their digest, with the blobs
// that each needs, and the publishes that are open.
type register struct {
	versions map[string][]string
	open     map[string]bool
}

func (r *register) Roots(context.Context) ([]string, error) {
	return slices.Collect(maps.Keys(r.versions)), nil
}

func (r *register) Publishes(context.Context) ([]string, error) {
	return slices.Collect(maps.Keys(r.open)), nil
}

func (r *register) EndPublish(_ context.Context, id string) error {
	delete(r.open, id)
	return nil
}

// publisher does what a publish does, step by step.
type publisher struct {
	id    string
	files []string
}

// atOnce takes over what another collector has just left.
const atOnce = -time.Hour

var (
	errKilled = errors.New("killed")
	contents  = []string{"one", "two", "three", "four", strings.Repeat("compressible ", 200)}
)

// world is a store with collectors and publishers over it, which act when told to.
type world struct {
	*rapid.T
	dir        string
	store      *blob.Store
	reg        *register
	publishers []*publisher
	collectors [2]func() (bool, bool) // resumes; nil when it is not at work
	stops      [2]func()
	made       int
}

// resume makes a collector take one step; it begins a cycle when it has none.
func (w *world) resume(n int) {
	if w.collectors[n] == nil {
		w.collectors[n], w.stops[n] = iter.Pull(w.cycle(n, rapid.SampledFrom([]time.Duration{time.Hour, atOnce}).Draw(w.T, "forsaken")))
	}
	if _, more := w.collectors[n](); !more {
		w.stop(n)
	}
}

// cycle is one cycle that stops between any two steps; stopped for good, it dies there.
func (w *world) cycle(n int, forsaken time.Duration) iter.Seq[bool] {
	return func(yield func(bool) bool) {
		defer func() {
			if r := recover(); r != nil && r != any(errKilled) {
				panic(r)
			}
		}()
		c := w.collector(n, forsaken)
		c.between = func() {
			if !yield(true) {
				panic(errKilled)
			}
		}
		_, _ = c.Cycle(w.Context()) // one that lost its trash to another ends with an error
	}
}

func (w *world) collector(n int, forsaken time.Duration) *Collector {
	return &Collector{Store: w.store, Referrers: w.reg, Replica: fmt.Sprint("r", n), Forsaken: forsaken}
}

func (w *world) stop(n int) {
	if w.stops[n] != nil {
		w.stops[n]()
	}
	w.collectors[n], w.stops[n] = nil, nil
}

func (w *world) pick() *publisher {
	if len(w.publishers) == 0 {
		w.Skip("nobody publishes")
	}
	return rapid.SampledFrom(w.publishers).Draw(w.T, "publisher")
}

func (w *world) forget(p *publisher) {
	delete(w.reg.open, p.id)
	w.publishers = slices.DeleteFunc(w.publishers, func(o *publisher) bool { return o == p })
}

func (w *world) begin() {
	if len(w.publishers) == 2 {
		w.Skip("more would keep the collectors waiting for ever")
	}
	w.made++
	p := &publisher{id: fmt.Sprint(w.made)}
	w.reg.open[p.id] = true
	w.publishers = append(w.publishers, p)
}

func (w *world) add(p *publisher) {
	sum, err := w.store.Put(w.Context(), []byte(rapid.SampledFrom(contents).Draw(w.T, "content")))
	if err != nil {
		w.Fatal(err)
	}
	p.files = append(p.files, sum)
}

func (w *world) keep(p *publisher) {
	text := rapid.SampledFrom(contents).Draw(w.T, "content")
	if sum := fleet.DigestOf([]byte(text)); w.has(sum, len(text)) {
		p.files = append(p.files, sum)
	}
}

func (w *world) has(sum string, size int) bool {
	there, err := w.store.Has(w.Context(), sum, int64(size))
	if err != nil {
		w.Fatal(err)
	}
	return there
}

// commit stores the manifest and, some steps of a collector later, the version.
func (w *world) commit(p *publisher) {
	body := fleet.Manifest{}
	for n, sum := range p.files {
		body.Entries = append(body.Entries, fleet.ManifestEntry{Path: fmt.Sprintf("f%02d", n), SHA256: sum, Size: 1})
	}
	b, err := json.Marshal(body)
	if err != nil {
		w.Fatal(err)
	}
	digest, err := w.store.Put(w.Context(), b)
	if err != nil {
		w.Fatal(err)
	}
	w.resume(rapid.IntRange(0, 1).Draw(w.T, "meanwhile"))
	if w.reg.open[p.id] { // the fence of the transaction
		w.reg.versions[digest] = append(slices.Clone(p.files), digest)
	}
	w.forget(p)
}

// check demands that what every version needs lies in the store or in some trash. It
// looks without taking anything back.
func (w *world) check() {
	there := map[string]bool{}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && len(d.Name()) >= 64 {
			there[d.Name()[:64]] = true
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	for digest, needs := range w.reg.versions {
		for _, sum := range needs {
			if !there[sum] {
				w.Fatalf("version %.8s lost blob %.8s", digest, sum)
			}
		}
	}
}

// rest ends everything and collects twice: only what versions need may be left.
func (w *world) rest() {
	for n := range w.collectors {
		w.stop(n)
	}
	w.reg.open = map[string]bool{}
	for range 2 {
		if _, err := w.collector(0, atOnce).Cycle(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
	needed := map[string]bool{}
	for _, needs := range w.reg.versions {
		for _, sum := range needs {
			needed[sum] = true
		}
	}
	for f, err := range w.store.Files(w.Context()) {
		if err != nil || !needed[f.Sum] {
			w.Fatalf("garbage is left: %s, %v", f.Name, err)
		}
		delete(needed, f.Sum)
	}
	if left, err := os.ReadDir(filepath.Join(w.dir, "trash")); len(needed) > 0 || len(left) > 0 || err != nil {
		w.Fatalf("lost %v, in the trash %v, %v", needed, left, err)
	}
}

func TestACollectionNeverTakesWhatAPublishNeeds(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		store, err := blob.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		w := &world{T: t, dir: dir, store: store, reg: &register{versions: map[string][]string{}, open: map[string]bool{}}}
		defer func() { w.stop(0); w.stop(1) }()
		t.Repeat(map[string]func(*rapid.T){
			"":       func(*rapid.T) { w.check() },
			"begin":  func(*rapid.T) { w.begin() },
			"add":    func(*rapid.T) { w.add(w.pick()) },
			"add on": func(*rapid.T) { w.add(w.pick()) },
			"keep":   func(*rapid.T) { w.keep(w.pick()) },
			"commit": func(*rapid.T) { w.commit(w.pick()) },
			"crash":  func(*rapid.T) { w.forget(w.pick()) },
			"lose the lease": func(*rapid.T) {
				delete(w.reg.open, w.pick().id)
			},
			"delete": func(*rapid.T) {
				if len(w.reg.versions) > 0 {
					delete(w.reg.versions, rapid.SampledFrom(slices.Sorted(maps.Keys(w.reg.versions))).Draw(w.T, "version"))
				}
			},
			"collect": func(*rapid.T) { w.resume(0) },
			"collect on": func(*rapid.T) {
				for range rapid.IntRange(2, 12).Draw(w.T, "steps") {
					w.resume(0)
				}
			},
			"litter":         func(*rapid.T) { w.add(&publisher{}) }, // what a publish left that gave up
			"collect beside": func(*rapid.T) { w.resume(1) },
			"kill":           func(*rapid.T) { w.stop(0) },
		})
		w.rest()
	})
}

// TestWhatCannotBeReadStopsTheCollection: a manifest, or what a large file in one is
// joined from.
func TestWhatCannotBeReadStopsTheCollection(t *testing.T) {
	whole := strings.Repeat("x", blob.RecipeFrom)
	sum := fleet.DigestOf([]byte(whole))
	named := fleet.Manifest{Entries: []fleet.ManifestEntry{{Path: "f", SHA256: sum, Size: int64(len(whole))}}}
	for name, arrange := range map[string]func(dir string, s *blob.Store) (digest string, err error){
		"a manifest that is missing": func(string, *blob.Store) (string, error) { return strings.Repeat("a", 64), nil },
		"a manifest that is none":    func(_ string, s *blob.Store) (string, error) { return s.Put(t.Context(), []byte("no JSON")) },
		"a recipe that is missing":   func(_ string, s *blob.Store) (string, error) { return putJSON(s, named) },
		"a recipe that is damaged": func(dir string, s *blob.Store) (string, error) {
			err := os.MkdirAll(filepath.Join(dir, sum[:2]), 0o755)
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, sum[:2], sum+".chunks"), []byte("{"), 0o600))
			digest, putErr := putJSON(s, named)
			return digest, errors.Join(err, putErr)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store, err := blob.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			digest, err := arrange(dir, store)
			if err != nil {
				t.Fatal(err)
			}
			garbage, err := store.Put(t.Context(), []byte("garbage"))
			if err != nil {
				t.Fatal(err)
			}
			reg := &register{versions: map[string][]string{digest: nil}}
			c := &Collector{Store: store, Referrers: reg, Replica: "r"}
			for range 2 {
				if _, err := c.Cycle(t.Context()); err == nil {
					t.Error("the collection went on")
				}
			}
			if there, err := store.Has(t.Context(), garbage, 7); !there || err != nil {
				t.Error("something was removed", err)
			}
			delete(reg.versions, digest)
			if r, err := c.Cycle(t.Context()); err != nil || r.Removed == 0 {
				t.Errorf("when nothing names it any more: %+v, %v", r, err)
			}
		})
	}
}

func putJSON(s *blob.Store, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return s.Put(context.Background(), b)
}

func TestAPublishThatNeverEndsIsEnded(t *testing.T) {
	store, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	reg := &register{open: map[string]bool{"hangs": true}}
	c := &Collector{Store: store, Referrers: reg, Replica: "r", Patience: time.Nanosecond}
	if r, err := c.Cycle(t.Context()); err != nil || r.Removed != 1 || len(reg.open) > 0 {
		t.Errorf("%+v, %v, open %v", r, err, reg.open)
	}
}
