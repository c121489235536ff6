package s3_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client/s3test"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/store/s3"
)

// site is an S3 server whose requests may fail, and the stores that use it.
type site struct {
	t      *testing.T
	server *s3test.Server
	before atomic.Pointer[func(*http.Request) error]
	// through wraps the transport of replicas; may be nil.
	through func(http.RoundTripper) http.RoundTripper
}

func newSite(t *testing.T) *site {
	t.Helper()
	server, err := s3test.New()
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, server: server}
}

func (s *site) failing(f func(*http.Request) error) { s.before.Store(&f) }

// replica returns the store of another replica, with its own disk.
func (s *site) replica(cacheBytes int64) (store *blob.Store, dir string) {
	s.t.Helper()
	dir = s.t.TempDir()
	store, _ = s.replicaIn(dir, cacheBytes)
	return store, dir
}

// replicaIn is like replica, for an existing cache directory. done closes the store, as the
// end of the test does.
func (s *site) replicaIn(dir string, cacheBytes int64) (store *blob.Store, done func()) {
	s.t.Helper()
	near := s.server.Near(func(r *http.Request) error {
		if f := s.before.Load(); f != nil {
			return (*f)(r)
		}
		return nil
	})
	if through, inner := s.through, near.Through; through != nil {
		near.Through = func(t http.RoundTripper) http.RoundTripper { return through(inner(t)) }
	}
	m, done, err := s3.New(s3.Config{
		S3:     near,
		Bucket: s3test.Bucket, Prefix: "orrery", Dir: filepath.Join(dir, "cache"), CacheBytes: cacheBytes, Pause: time.Nanosecond,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	done = sync.OnceFunc(done)
	s.t.Cleanup(done)
	if store, err = blob.New(dir, m); err != nil {
		s.t.Fatal(err)
	}
	return store, done
}

// reads reports whether a request downloads an object.
func reads(r *http.Request) bool {
	return r.Method == http.MethodGet && !strings.Contains(r.URL.RawQuery, "list-type")
}

// downloads counts the downloads from now on.
func (s *site) downloads() *atomic.Int32 {
	var gets atomic.Int32
	s.failing(func(r *http.Request) error {
		if reads(r) {
			gets.Add(1)
		}
		return nil
	})
	return &gets
}

func (s *site) keys(of string) (keys []string) {
	s.t.Helper()
	all, err := s.server.Keys()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, k := range all {
		if strings.Contains(k, of) {
			keys = append(keys, k)
		}
	}
	return keys
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

func put(t *testing.T, s *blob.Store, b []byte) string {
	t.Helper()
	sum, err := s.Put(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func TestReplicasThatShareABucketHaveTheSameContent(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	b, _ := s.replica(1 << 30)
	for name, content := range map[string][]byte{
		"nothing": nil, "little": []byte("level=1\n"), "text": bytes.Repeat([]byte("level=1\n"), 10_000), "noise": noise(5000),
	} {
		sum := put(t, a, content)
		put(t, b, content)
		if keys := s.keys(sum); len(keys) != 1 {
			t.Errorf("%s: stored as %v", name, keys)
		}
		if there, err := b.Has(t.Context(), sum, int64(len(content))); !there || err != nil {
			t.Errorf("%s: not had, %v", name, err)
		}
		for _, other := range []int64{0, int64(len(content)) + 1} {
			if there, err := b.Has(t.Context(), sum, other); there != (other == int64(len(content))) || err != nil {
				t.Errorf("%s: had with %d bytes: %v, %v", name, other, there, err)
			}
		}
		if got, err := b.ReadAll(t.Context(), sum); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	one, err := a.ID(t.Context())
	two, err2 := b.ID(t.Context())
	if err != nil || err2 != nil || one == "" || one != two {
		t.Errorf("ids %q and %q, %v, %v", one, two, err, err2)
	}
	if _, err := a.Here(t.Context(), content.DigestOf([]byte("another"))); !errs.Is(err, errs.NotFound) {
		t.Errorf("what is not there: %v", err)
	}
}

func TestALargeBlobIsUploadedInParts(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	b, _ := s.replica(1 << 30)
	data := noise(24 << 20)
	sum := content.DigestOf(data)
	if err := a.Import(t.Context(), sum, int64(len(data)), bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	r, err := b.Open(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestWhatTenReadAtOnceIsDownloadedOnce(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	b, dir := s.replica(20_000)
	contents := [][]byte{noise(9000), noise(9001), noise(9002)}
	sums := []string{put(t, a, contents[0]), put(t, a, contents[1]), put(t, a, contents[2])}
	gets := s.downloads()
	var readers sync.WaitGroup
	for range 10 {
		readers.Go(func() {
			if got, err := b.ReadAll(t.Context(), sums[0]); err != nil || !bytes.Equal(got, contents[0]) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	readers.Wait()
	if n := gets.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
	for n, sum := range sums {
		if got, err := b.ReadAll(t.Context(), sum); err != nil || !bytes.Equal(got, contents[n]) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	held := int64(0)
	files, err := os.ReadDir(filepath.Join(dir, "cache"))
	for _, f := range files {
		if fi, err := f.Info(); err == nil {
			held += fi.Size()
		}
	}
	if err != nil || held > 20_000 {
		t.Errorf("%d bytes are kept, %v", held, err)
	}
}

// damage replaces an object's content.
func (s *site) damage(key string, b []byte) {
	s.t.Helper()
	if _, err := s.server.Backend.PutObject(s3test.Bucket, key, map[string]string{}, bytes.NewReader(b), int64(len(b)), nil); err != nil {
		s.t.Fatal(err)
	}
}

func TestWhatIsCorruptInTheBucketIsNotServedAndStoredAnew(t *testing.T) {
	s := newSite(t)
	for name, content := range map[string][]byte{"raw": noise(5000), "packed": make([]byte, 5000)} {
		t.Run(name, func(t *testing.T) {
			a, _ := s.replica(1 << 30)
			b, _ := s.replica(1 << 30)
			sum := put(t, a, content)
			key := s.keys(sum)[0]
			s.damage(key, noise(4321))
			if _, err := b.Here(t.Context(), sum); err == nil {
				t.Error("it was served")
			}
			if there, err := b.Has(t.Context(), sum, 5000); there || err != nil {
				t.Errorf("it is still said to be there, %v", err)
			}
			put(t, b, content)
			if got, err := b.ReadAll(t.Context(), sum); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// damaging is a transport that damages some downloads.
type damaging struct {
	http.RoundTripper
	next *atomic.Int32 // how many downloads to damage
}

// RoundTrip implements http.RoundTripper.
func (d damaging) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := d.RoundTripper.RoundTrip(r)
	if err != nil || !reads(r) || d.next.Add(-1) < 0 {
		return response, err
	}
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	b[len(b)-1] ^= 1
	response.Body = io.NopCloser(bytes.NewReader(b))
	return response, nil
}

// damagingReplica returns a replica whose first downloads are damaged.
func (s *site) damagingReplica(answers int32) *blob.Store {
	s.t.Helper()
	var next atomic.Int32
	next.Store(answers)
	s.through = func(t http.RoundTripper) http.RoundTripper { return damaging{t, &next} }
	defer func() { s.through = nil }()
	store, _ := s.replica(1 << 30)
	return store
}

const always = 1 << 20

func TestWhatComesDamagedOnceIsReadOnceMoreAndNotSaidToBeCorrupt(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	for name, content := range map[string][]byte{"raw": noise(5000), "packed": make([]byte, 5000)} {
		sum := put(t, a, content)
		if got, err := s.damagingReplica(1).ReadAll(t.Context(), sum); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if keys := s.keys(sum); len(keys) != 1 {
			t.Errorf("%s: %v", name, keys)
		}
	}
}

func TestAReplicaThatReadsEverythingWronglyTakesNothingFromTheOthers(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	wrong := s.damagingReplica(always)
	content := noise(5000)
	sum := put(t, a, content)
	if _, err := wrong.Here(t.Context(), sum); !errs.Is(err, errs.NotFound) {
		t.Fatalf("the damaged one was served, %v", err)
	}
	if keys := s.keys("!corrupt"); len(keys) != 1 {
		t.Fatalf("it was not said to be corrupt: %v", s.keys(sum))
	}
	b, _ := s.replica(1 << 30)
	if got, err := b.ReadAll(t.Context(), sum); err != nil || !bytes.Equal(got, content) {
		t.Errorf("another replica reads %d bytes, %v", len(got), err)
	}
	if there, err := b.Has(t.Context(), sum, 5000); !there || err != nil {
		t.Errorf("another replica has it: %v, %v", there, err)
	}
	if keys := s.keys(sum); len(keys) != 3 {
		t.Errorf("it was not taken back: %v", keys)
	}
}

func TestWhatComesDamagedGetsNoOtherName(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	content := noise(5000)
	sum := put(t, a, content)
	s.damage(s.keys(sum)[0]+"!cycle", nil)
	if there, err := s.damagingReplica(always).Has(t.Context(), sum, 5000); there || err != nil {
		t.Errorf("had: %v, %v", there, err)
	}
	b, _ := s.replica(1 << 30)
	if there, err := b.Has(t.Context(), sum, 5000); !there || err != nil {
		t.Errorf("another replica has it: %v, %v", there, err)
	}
	if got, err := b.ReadAll(t.Context(), sum); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestWhatIsCorruptIsReadNoMoreThanTwiceByAProcess(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	b, _ := s.replica(1 << 30)
	sum := put(t, a, noise(5000))
	s.damage(s.keys(sum)[0], noise(4321))
	gets := s.downloads()
	for range 5 {
		if _, err := b.Here(t.Context(), sum); !errs.Is(err, errs.NotFound) {
			t.Errorf("it was served, %v", err)
		}
		if there, err := b.Has(t.Context(), sum, 5000); there || err != nil {
			t.Errorf("it is said to be there, %v", err)
		}
	}
	if gets.Load() != 2 {
		t.Errorf("read %d times", gets.Load())
	}
}

func TestWhatIsDamagedOnTheDiskIsReadFromTheBucketAgain(t *testing.T) {
	s := newSite(t)
	a, dir := s.replica(1 << 30)
	sum := put(t, a, noise(5000))
	if _, err := a.ReadAll(t.Context(), sum); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cache", sum), noise(4000), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := a.ReadAll(t.Context(), sum); err != nil || len(got) != 5000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if keys := s.keys(sum); len(keys) != 1 {
		t.Errorf("the bucket's was said to be corrupt: %v", keys)
	}
}

func TestAServerThatCannotAnswerIsAskedAgainAndThenTold(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	sum := put(t, a, noise(5000))
	var asked atomic.Int32
	s.failing(func(*http.Request) error {
		if asked.Add(1)%2 == 1 {
			return errors.New("cut")
		}
		return nil
	})
	if got, err := a.ReadAll(t.Context(), sum); err != nil || len(got) != 5000 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	put(t, a, noise(6000))
	asked.Store(0)
	s.failing(func(*http.Request) error { asked.Add(1); return errors.New("cut") })
	b, _ := s.replica(1 << 30)
	for what, do := range map[string]func() error{
		"has":  func() error { _, err := b.Has(t.Context(), sum, 5000); return err },
		"put":  func() error { _, err := b.Put(t.Context(), noise(7000)); return err },
		"read": func() error { _, err := b.ReadAll(t.Context(), sum); return err },
		"id":   func() error { _, err := b.ID(t.Context()); return err },
	} {
		asked.Store(0)
		if err := do(); !errs.Is(err, errs.Unavailable) || asked.Load() > 5 || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v after %d requests", what, err, asked.Load())
		}
	}
}

// roundTrip is a function that implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestReplicasThatNameABucketAtOnceAgreeAlsoWithoutConditionalRequests(t *testing.T) {
	s := newSite(t)
	s.through = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			r.Header.Del("If-None-Match")
			return next.RoundTrip(r)
		})
	}
	a, _ := s.replica(1 << 30)
	b, _ := s.replica(1 << 30)
	// b creates an ID after a has found none, and before a creates one.
	var first atomic.Bool
	s.failing(func(r *http.Request) error {
		if r.Method == http.MethodPut && first.CompareAndSwap(false, true) {
			if id, err := b.ID(t.Context()); err != nil || id == "" {
				t.Errorf("%q, %v", id, err)
			}
		}
		return nil
	})
	one, err := a.ID(t.Context())
	two, err2 := b.ID(t.Context())
	if err != nil || err2 != nil || one == "" || one != two {
		t.Errorf("ids %q and %q, %v, %v", one, two, err, err2)
	}
}

func TestWhoAsksForTheIDDoesNotWaitForOneWhoseRequestHangs(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	hangs, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	s.failing(func(*http.Request) error {
		if first.CompareAndSwap(false, true) {
			close(hangs)
			<-release
		}
		return nil
	})
	var asking sync.WaitGroup
	defer asking.Wait()
	defer close(release)
	asking.Go(func() { _, _ = a.ID(t.Context()) })
	<-hangs
	answered := make(chan error, 1)
	asking.Go(func() {
		_, err := a.ID(t.Context())
		answered <- err
	})
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(await.Patience):
		t.Error("it waits for the other's request")
	}
}

// onDisk returns the size of a directory's files on the disk in bytes.
func onDisk(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, e.Name()), &st); err != nil {
			t.Fatal(err)
		}
		bytes += st.Blocks * 512
	}
	return bytes
}

func TestTheCacheIsBoundedByWhatItTakesOnTheDisk(t *testing.T) {
	const most = 64 << 10
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	b, dir := s.replica(most)
	for n := range 100 {
		if _, err := b.ReadAll(t.Context(), put(t, a, []byte(strconv.Itoa(n)))); err != nil {
			t.Fatal(err)
		}
	}
	if held := onDisk(t, filepath.Join(dir, "cache")); held > most {
		t.Errorf("%d bytes are taken", held)
	}
	again, _ := s.replicaIn(dir, most)
	if _, err := again.ReadAll(t.Context(), content.DigestOf([]byte("99"))); err != nil {
		t.Error(err)
	}
	if held := onDisk(t, filepath.Join(dir, "cache")); held > most {
		t.Errorf("after a restart %d bytes are taken", held)
	}
}

func TestReplicasThatShareACacheDirectoryLeaveEachOthersDownloadsAlone(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	content := noise(5000)
	sum := put(t, a, content)
	dir := t.TempDir()
	// Another process opens the directory during the download.
	var opened atomic.Bool
	s.through = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && reads(r) {
				response.Body = body{response.Body, func() {
					if opened.CompareAndSwap(false, true) {
						s.replicaIn(dir, 1<<30)
					}
				}}
			}
			return response, err
		})
	}
	b, _ := s.replicaIn(dir, 1<<30)
	if got, err := b.ReadAll(t.Context(), sum); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if !opened.Load() {
		t.Error("nobody opened the directory meanwhile")
	}
}

// body calls a function before its first read.
type body struct {
	io.ReadCloser
	before func()
}

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	b.before()
	return b.ReadCloser.Read(p)
}

func TestWhatADeadProcessWasDownloadingIsRemoved(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	if err := os.Mkdir(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new-123", "new-OLD-123", "lock-OLD"} { // nothing holds its lock
		if err := os.WriteFile(filepath.Join(cache, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, close := s.replicaIn(dir, 1<<30)
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
	close()
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || len(left) != 0 {
		t.Errorf("after its end left are %v, %v", left, err)
	}
}
