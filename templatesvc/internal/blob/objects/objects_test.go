package objects_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/blob/objects"
	"github.com/orreryhq/orrery/templatesvc/internal/s3/s3test"
)

// site is an S3 server in which requests may fail, and stores over it.
type site struct {
	t      *testing.T
	server *s3test.Server
	before atomic.Pointer[func(*http.Request) error]
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

// replica is another replica's store, with a disk of its own.
func (s *site) replica(cacheBytes int64) (store *blob.Store, dir string) {
	s.t.Helper()
	dir = s.t.TempDir()
	m, done, err := objects.New(objects.Config{
		S3: s.server.Near(func(r *http.Request) error {
			if f := s.before.Load(); f != nil {
				return (*f)(r)
			}
			return nil
		}),
		Bucket: s3test.Bucket, Prefix: "orrery", Dir: filepath.Join(dir, "cache"), CacheBytes: cacheBytes, Pause: time.Nanosecond,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(done)
	if store, err = blob.New(dir, m); err != nil {
		s.t.Fatal(err)
	}
	return store, dir
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
	if _, err := a.Here(t.Context(), fleet.DigestOf([]byte("another"))); !errs.Is(err, errs.NotFound) {
		t.Errorf("what is not there: %v", err)
	}
}

func TestALargeBlobIsUploadedInParts(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	b, _ := s.replica(1 << 30)
	content := noise(24 << 20)
	sum := fleet.DigestOf(content)
	if err := a.Import(t.Context(), sum, int64(len(content)), bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	r, err := b.Open(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestWhatTenReadAtOnceIsDownloadedOnce(t *testing.T) {
	s := newSite(t)
	a, _ := s.replica(1 << 30)
	b, dir := s.replica(20_000)
	contents := [][]byte{noise(9000), noise(9001), noise(9002)}
	sums := []string{put(t, a, contents[0]), put(t, a, contents[1]), put(t, a, contents[2])}
	var gets atomic.Int32
	s.failing(func(r *http.Request) error {
		if r.Method == http.MethodGet && !strings.Contains(r.URL.RawQuery, "list-type") {
			gets.Add(1)
		}
		return nil
	})
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
