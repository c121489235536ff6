package collect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/blob/objects"
	"github.com/orreryhq/orrery/templatesvc/internal/s3/s3test"
)

// register is what etcd knows in these tests: versions by their digest, with the blobs
// that each needs, and the publishes that are open.
type register struct {
	versions map[string][]string
	open     map[string]bool
	// lost is why an answer does not come of what was carried out; nil: all come.
	lost func() error
}

// answer is what comes of a request that was carried out.
func (r *register) answer() error {
	if r.lost == nil {
		return nil
	}
	return r.lost()
}

func (r *register) Roots(context.Context) ([]string, error) {
	return slices.Collect(maps.Keys(r.versions)), r.answer()
}

func (r *register) Publishes(context.Context) ([]string, error) {
	return slices.Collect(maps.Keys(r.open)), r.answer()
}

func (r *register) EndPublish(_ context.Context, id string) error {
	delete(r.open, id)
	return r.answer()
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
	errLost   = errors.New("the answer is lost")
	contents  = []string{"one", "two", "three", "four", strings.Repeat("compressible ", 200)}
)

// world is a store with collectors and publishers over it, which act when told to.
type world struct {
	*rapid.T
	store *blob.Store
	// replicas are the stores of the collectors, which stop in the middle of a request.
	replicas   [2]*blob.Store
	medium     medium
	running    int // the collector that takes a step, or -1
	reg        *register
	publishers []*publisher
	collectors [2]func() (bool, bool) // resumes; nil when it is not at work
	yields     [2]func()              // stops the collector that calls it
	alone      bool                   // no collector goes on by itself
	stops      [2]func()
	made       int
	// oneIn is of how many requests one goes wrong, 0: none does.
	oneIn int
	// late are requests to a bucket that nobody waits for any more, and that will be
	// carried out.
	late []func()
}

// medium is where the store of a world lies, looked at without taking anything back.
type medium interface {
	// there are the hashes whose content lies somewhere, condemned or not.
	there(t *rapid.T) map[string]bool
	// litter is what a collection leaves that nobody is interrupted in.
	litter(t *rapid.T) []string
	// accuse has something said to be corrupt that is not.
	accuse(t *rapid.T)
}

// resume makes a collector take one step; it begins a cycle when it has none.
func (w *world) resume(n int) {
	if w.collectors[n] == nil {
		times := rapid.SampledFrom([]time.Duration{time.Hour, atOnce})
		w.collectors[n], w.stops[n] = iter.Pull(w.cycle(n, times.Draw(w.T, "forsaken"), times.Draw(w.T, "patience")))
	}
	w.running = n
	_, more := w.collectors[n]()
	w.running = -1
	if !more {
		w.stop(n)
	}
}

// cycle is one cycle that stops between any two steps; stopped for good, it dies there.
func (w *world) cycle(n int, forsaken, patience time.Duration) iter.Seq[bool] {
	return func(yield func(bool) bool) {
		defer func() {
			if r := recover(); r != nil && r != any(errKilled) {
				panic(r)
			}
		}()
		alive := true
		w.yields[n] = func() {
			if alive = alive && yield(true); !alive {
				panic(errKilled)
			}
		}
		c := w.collector(n, forsaken)
		c.Patience = patience
		c.between = w.yields[n]
		_, _ = c.Cycle(w.Context()) // one that lost its trash to another, or an answer, ends with an error
	}
}

// request is called before each request to a bucket: a collector stops there too, and
// while a publisher makes one, a collector may go on.
func (w *world) request(*http.Request) error {
	if w.running >= 0 {
		w.yields[w.running]()
		return nil
	}
	if !w.alone && rapid.IntRange(0, 3).Draw(w.T, "between requests") == 0 {
		w.resume(rapid.IntRange(0, 1).Draw(w.T, "collector"))
	}
	return nil
}

// lost has some answers not come, unless nobody is to be disturbed.
func (w *world) lost() error {
	if !w.alone && w.oneIn > 0 && rapid.IntRange(1, w.oneIn).Draw(w.T, "lost") == w.oneIn {
		return errLost
	}
	return nil
}

// arrive carries out the oldest request that is late.
func (w *world) arrive() {
	if len(w.late) > 0 {
		arrives := w.late[0]
		w.late = w.late[1:]
		arrives()
	}
}

// unsure is a way to a bucket on which requests that fail were carried out, or will be.
type unsure struct {
	*world
	now, later http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (u unsure) RoundTrip(r *http.Request) (*http.Response, error) {
	if u.lost() == nil {
		return u.now.RoundTrip(r)
	}
	// What the client takes for final, so that it does not wait before it says so.
	refusal := &http.Response{StatusCode: 599, Header: http.Header{}, Body: http.NoBody, Request: r}
	if rapid.Bool().Draw(u.T, "carried out at once") {
		_, err := u.now.RoundTrip(r)
		return refusal, err
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	again := r.Clone(context.Background())
	u.late = append(u.late, func() {
		again.Body = io.NopCloser(bytes.NewReader(body))
		if _, err := u.later.RoundTrip(again); err != nil {
			u.Fatal(err)
		}
	})
	return refusal, nil
}

func (w *world) collector(n int, forsaken time.Duration) *Collector {
	return &Collector{Store: w.replicas[n], Referrers: w.reg, Replica: fmt.Sprint("r", n), Forsaken: forsaken}
}

func (w *world) stop(n int) {
	before := w.running
	w.running = n
	if w.stops[n] != nil {
		w.stops[n]()
	}
	w.running = before
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
	if w.lost() == nil { // else nobody knows of the record, which goes with its lease
		w.publishers = append(w.publishers, p)
	}
}

// expire ends the records that nobody keeps any more.
func (w *world) expire() {
	maps.DeleteFunc(w.reg.open, func(id string, _ bool) bool {
		return !slices.ContainsFunc(w.publishers, func(p *publisher) bool { return p.id == id })
	})
}

func (w *world) add(p *publisher) {
	sum, err := w.store.Put(w.Context(), []byte(rapid.SampledFrom(contents).Draw(w.T, "content")))
	if w.went(p, err) {
		p.files = append(p.files, sum)
	}
}

func (w *world) keep(p *publisher) {
	text := rapid.SampledFrom(contents).Draw(w.T, "content")
	sum := fleet.DigestOf([]byte(text))
	if there, err := w.store.Has(w.Context(), sum, int64(len(text))); w.went(p, err) && there {
		p.files = append(p.files, sum)
	}
}

// went reports whether a publisher's step went well; it gives up when it did not.
func (w *world) went(p *publisher, err error) bool {
	if err != nil && (w.oneIn == 0 || !errs.Is(err, errs.Unavailable)) {
		w.Fatal(err)
	}
	if err != nil {
		w.forget(p)
	}
	return err == nil
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
	if !w.went(p, err) {
		return
	}
	w.resume(rapid.IntRange(0, 1).Draw(w.T, "meanwhile"))
	if w.reg.open[p.id] { // the fence of the transaction
		w.reg.versions[digest] = append(slices.Clone(p.files), digest)
	}
	if w.lost() == nil { // else it tries again, or gives up
		w.forget(p)
	}
}

// check demands that what every version needs lies in the medium, condemned or not.
func (w *world) check() {
	there := w.medium.there(w.T)
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
	w.alone = true
	for n := range w.collectors {
		w.stop(n)
	}
	for len(w.late) > 0 {
		w.arrive()
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
	found := map[string]bool{}
	for f, err := range w.store.Files(w.Context()) {
		if err != nil || f.Condemned || !needed[f.Sum] {
			w.Fatalf("garbage is left: %s, %v", f.Name, err)
		}
		found[f.Sum] = true
	}
	if left := w.medium.litter(w.T); len(found) != len(needed) || len(left) > 0 {
		w.Fatalf("found %v of %v, and left is %v", found, needed, left)
	}
}

// directory is a medium on disk.
type directory struct{ dir string }

func (d directory) there(t *rapid.T) map[string]bool {
	there := map[string]bool{}
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && len(e.Name()) >= 64 {
			there[e.Name()[:64]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

func (d directory) litter(t *rapid.T) (left []string) {
	entries, err := os.ReadDir(filepath.Join(d.dir, "trash"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	return left
}

// accuse is nothing that can be said of a file on a disk.
func (d directory) accuse(t *rapid.T) { t.Skip("a file is what it is") }

// bucket is a medium in a bucket.
type bucket struct{ *s3test.Server }

func (b bucket) keys(t *rapid.T) []string {
	keys, err := b.Keys()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func (b bucket) there(t *rapid.T) map[string]bool {
	there := map[string]bool{}
	for _, k := range b.keys(t) {
		if !strings.Contains(k, "!") {
			there[k[:64]] = true
		}
	}
	return there
}

func (b bucket) litter(t *rapid.T) (left []string) {
	for _, k := range b.keys(t) {
		if strings.Contains(k, "!") {
			left = append(left, k)
		}
	}
	return left
}

func (b bucket) accuse(t *rapid.T) {
	names := slices.DeleteFunc(b.keys(t), func(k string) bool { return strings.Contains(k, "!") })
	if len(names) == 0 {
		t.Skip("the bucket is empty")
	}
	name := rapid.SampledFrom(names).Draw(t, "name") + "!corrupt"
	if _, err := b.Backend.PutObject(s3test.Bucket, name, map[string]string{}, strings.NewReader(""), 0, nil); err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *rapid.T) *world {
	w := &world{T: t, running: -1, reg: &register{versions: map[string][]string{}, open: map[string]bool{}}}
	w.oneIn = rapid.SampledFrom([]int{0, 10, 2}).Draw(t, "one request goes wrong in")
	w.reg.lost = w.lost
	return w
}

func TestACollectionNeverTakesWhatAPublishNeeds(t *testing.T) {
	base := t.TempDir()
	t.Run("on a disk", func(t *testing.T) {
		property(t, base, func(w *world, dir string) error {
			var err error
			w.store, err = blob.Open(dir)
			w.replicas = [2]*blob.Store{w.store, w.store}
			w.medium = directory{dir}
			return err
		})
	})
	t.Run("in a bucket", func(t *testing.T) {
		property(t, base, func(w *world, dir string) error {
			server, err := s3test.New()
			if err != nil {
				return err
			}
			w.medium = bucket{server}
			for n, store := range []**blob.Store{&w.store, &w.replicas[0], &w.replicas[1]} {
				own := filepath.Join(dir, fmt.Sprint(n))
				near := server.Near(w.request)
				now, later := near.Through(nil), server.Near(func(*http.Request) error { return nil }).Through(nil)
				near.Through = func(http.RoundTripper) http.RoundTripper { return unsure{w, now, later} }
				m, done, err := objects.New(objects.Config{
					S3: near, Bucket: s3test.Bucket, Dir: filepath.Join(own, "cache"), CacheBytes: 1 << 20, Pause: time.Nanosecond,
				})
				if err != nil {
					return err
				}
				w.Cleanup(done)
				if *store, err = blob.New(own, m); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// property has publishers and two collectors do what they do in any order.
func property(t *testing.T, base string, open func(w *world, dir string) error) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w := newWorld(t)
		if err := open(w, dir); err != nil {
			t.Fatal(err)
		}
		defer func() { w.stop(0); w.stop(1) }()
		t.Repeat(map[string]func(*rapid.T){
			"":       func(*rapid.T) { w.check() },
			"begin":  func(*rapid.T) { w.begin() },
			"add":    func(*rapid.T) { w.add(w.pick()) },
			"add on": func(*rapid.T) { w.add(w.pick()) },
			"keep":   func(*rapid.T) { w.keep(w.pick()) },
			"commit": func(*rapid.T) { w.commit(w.pick()) },
			"crash":  func(*rapid.T) { w.forget(w.pick()) },
			"expire": func(*rapid.T) { w.expire() },
			"arrive": func(*rapid.T) { w.arrive() },
			"accuse": func(t *rapid.T) { w.medium.accuse(t) },
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
