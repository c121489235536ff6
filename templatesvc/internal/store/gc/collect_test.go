package gc

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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client/s3test"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/store/s3"
)

// register stands in for etcd: it holds the versions by digest, with the blobs that each
// needs, and the open publishes.
type register struct {
	versions map[string][]string
	open     map[string]bool
	// lost returns an error if the answer to a request that was performed is lost; may be
	// nil.
	lost func() error
}

// answer returns the error of a request that was performed.
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

// publisher performs a publish step by step.
type publisher struct {
	id    string
	files []string
}

// atOnce makes a collector take over cycles that another one has just left.
const atOnce = -time.Hour

var (
	errKilled = errors.New("killed")
	errLost   = errors.New("the answer is lost")
	contents  = []string{"one", "two", "three", "four", strings.Repeat("compressible ", 200)}
)

// world is a store with collectors and publishers that run one step at a time.
type world struct {
	*rapid.T
	store *blob.Store
	// replicas are the stores of the collectors, which can stop in the middle of a request.
	replicas   [2]*blob.Store
	medium     medium
	running    int // index of the collector that takes a step, or -1
	reg        *register
	publishers []*publisher
	collectors [2]func() (bool, bool) // resumes a collector; nil when it is idle
	yields     [2]func()              // stops the collector that calls it
	alone      bool                   // no collector takes a step by itself
	stops      [2]func()
	made       int
	// oneIn is the average number of requests per failure; 0 means no failures.
	oneIn int
	// late are requests to a bucket that timed out for the client, but will still be
	// performed.
	late []func()
}

// medium inspects the files of a world without restoring any.
type medium interface {
	// there returns the hashes of all stored content, including condemned content.
	there(t *rapid.T) map[string]bool
	// litter returns what an uninterrupted collection leaves behind.
	litter(t *rapid.T) []string
	// accuse marks a valid object as corrupt.
	accuse(t *rapid.T)
}

// resume makes a collector take one step. It starts a cycle if the collector is idle.
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

// cycle runs a cycle that stops between any two steps. If it is not resumed, it ends there
// like a crashed process.
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
		_, _ = c.Cycle(w.Context()) // returns an error if it lost its trash to another collector, or an answer
	}
}

// request is called before each request to a bucket. A collector stops there too, and
// another collector may run during a publisher's request.
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

// lost makes some answers fail, unless failures are switched off.
func (w *world) lost() error {
	if !w.alone && w.oneIn > 0 && rapid.IntRange(1, w.oneIn).Draw(w.T, "lost") == w.oneIn {
		return errLost
	}
	return nil
}

// arrive performs the oldest late request.
func (w *world) arrive() {
	if len(w.late) > 0 {
		arrives := w.late[0]
		w.late = w.late[1:]
		arrives()
	}
}

// unsure is a transport to a bucket on which failed requests were performed, or will be.
type unsure struct {
	*world
	now, later http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (u unsure) RoundTrip(r *http.Request) (*http.Response, error) {
	if u.lost() == nil {
		return u.now.RoundTrip(r)
	}
	// An error that the client does not retry, so that it returns at once.
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
	if w.lost() == nil { // otherwise the client does not know the record, which expires with its lease
		w.publishers = append(w.publishers, p)
	}
}

// expire ends the records of abandoned publishes.
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
	sum := content.DigestOf([]byte(text))
	if there, err := w.store.Has(w.Context(), sum, int64(len(text))); w.went(p, err) && there {
		p.files = append(p.files, sum)
	}
}

// went reports whether a publisher's step succeeded. If not, the publisher gives up.
func (w *world) went(p *publisher, err error) bool {
	if err != nil && (w.oneIn == 0 || !errs.Is(err, errs.Unavailable)) {
		w.Fatal(err)
	}
	if err != nil {
		w.forget(p)
	}
	return err == nil
}

// commit stores the manifest and, after some steps of collectors, the version.
func (w *world) commit(p *publisher) {
	body := content.Manifest{}
	for n, sum := range p.files {
		body.Entries = append(body.Entries, content.ManifestEntry{Path: fmt.Sprintf("f%02d", n), SHA256: sum, Size: 1})
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
	if w.lost() == nil { // otherwise the publisher tries again or gives up
		w.forget(p)
	}
}

// check verifies that everything that a version needs is stored, condemned or not.
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

// rest ends everything and collects twice. After that, only what versions need may be left.
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

// directory is a medium on a disk.
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

// accuse skips the step, because files on a disk have no marks.
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
				m, done, err := s3.New(s3.Config{
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

// property runs random steps of publishers and two collectors.
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
			"litter":         func(*rapid.T) { w.add(&publisher{}) }, // left by an abandoned publish
			"collect beside": func(*rapid.T) { w.resume(1) },
			"kill":           func(*rapid.T) { w.stop(0) },
		})
		w.rest()
	})
}

// TestWhatCannotBeReadStopsTheCollection covers a manifest and the recipe of a large file
// in it.
func TestWhatCannotBeReadStopsTheCollection(t *testing.T) {
	whole := strings.Repeat("x", blob.RecipeFrom)
	sum := content.DigestOf([]byte(whole))
	named := content.Manifest{Entries: []content.ManifestEntry{{Path: "f", SHA256: sum, Size: int64(len(whole))}}}
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
