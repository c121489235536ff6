package blob_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

// another is an Elsewhere that serves the blobs of a second store.
type another struct {
	*blob.Store
	asked atomic.Int32
	// answer replaces the content of every blob; may be nil.
	answer func(ctx context.Context) (io.ReadCloser, error)
}

func (a *another) Blob(ctx context.Context, sum string) (io.ReadCloser, error) {
	a.asked.Add(1)
	if a.answer != nil {
		return a.answer(ctx)
	}
	b, err := a.Here(ctx, sum)
	if err != nil {
		return nil, err
	}
	return b.File, nil
}

func (a *another) Recipe(ctx context.Context, sum string) (content.Content, error) {
	return a.RecipeHere(ctx, sum)
}

// pair returns an empty store and the Elsewhere that it asks.
func pair(t *testing.T) (*blob.Store, *another) {
	t.Helper()
	s, a := open(t, t.TempDir()), &another{Store: open(t, t.TempDir())}
	s.AskElsewhere(a)
	return s, a
}

func TestWhatIsMissingIsFetchedOnceForAllWhoReadIt(t *testing.T) {
	s, a := pair(t)
	content := noise(6 << 20) // more than is buffered in memory
	sum := put(t, a.Store, content)
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			if b, err := s.ReadAll(t.Context(), sum); err != nil || !bytes.Equal(b, content) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	}
	readers.Wait()
	if n := a.asked.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
	if !has(t, s, sum, int64(len(content))) {
		t.Error("it was not kept")
	}
}

func TestWhatTheDiskCannotReadIsFetchedAnewWhenItIsRead(t *testing.T) {
	dir := t.TempDir()
	s, a := open(t, dir), &another{Store: open(t, t.TempDir())}
	s.AskElsewhere(a)
	content := noise(5000)
	sum := put(t, s, content)
	put(t, a.Store, content)
	path := filepath.Join(dir, sum[:2], sum)
	// The file can be opened, but reading it fails with EIO.
	if err := errors.Join(os.Remove(path), os.Symlink("/proc/self/mem", path)); err != nil {
		t.Fatal(err)
	}
	if b, err := s.ReadAll(t.Context(), sum); err != nil || !bytes.Equal(b, content) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestWhatComesWithAnotherHashOrBreaksOffIsNotKept(t *testing.T) {
	sum := content.DigestOf([]byte("wanted"))
	for name, r := range map[string]io.Reader{
		"another content": strings.NewReader("other"),
		"another, large":  bytes.NewReader(noise(5 << 20)),
		"a part":          io.MultiReader(strings.NewReader("wan"), errReader{}),
		"nothing":         strings.NewReader(""),
	} {
		t.Run(name, func(t *testing.T) {
			s, a := pair(t)
			a.answer = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(r), nil }
			if _, err := s.Lookup(t.Context(), sum); !errs.Is(err, errs.Unavailable) {
				t.Errorf("got %v", err)
			}
			if _, err := s.Here(t.Context(), sum); !errs.Is(err, errs.NotFound) {
				t.Errorf("kept: %v", err)
			}
		})
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("cut") }

func TestWhoWaitsForAFetchGoesOnWhenTheOtherGivesUp(t *testing.T) {
	s, a := pair(t)
	sum := put(t, a.Store, []byte("content"))
	began := make(chan struct{})
	a.answer = func(ctx context.Context) (io.ReadCloser, error) {
		if a.asked.Load() > 1 {
			return io.NopCloser(strings.NewReader("content")), nil
		}
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	first, giveUp := context.WithCancel(t.Context())
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := s.ReadAll(first, sum); !errs.Is(err, errs.Canceled) {
			t.Errorf("who gave up: %v", err)
		}
	})
	<-began
	both.Go(func() {
		if b, err := s.ReadAll(t.Context(), sum); err != nil || string(b) != "content" {
			t.Errorf("who waited: %q, %v", b, err)
		}
	})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadAll(canceled, sum); !errs.Is(err, errs.Canceled) {
		t.Errorf("who has gone: %v", err)
	}
	giveUp()
	both.Wait()
}

func TestALargeFileComesByItsChunks(t *testing.T) {
	s, a := pair(t)
	whole := noise(9000)
	sum := sha256.Sum256(whole)
	c := content.Content{SHA256: hex.EncodeToString(sum[:]), Size: 9000}
	for n := 0; n < len(whole); n += 3000 {
		c.Chunks = append(c.Chunks, content.Chunk{SHA256: put(t, a.Store, whole[n:n+3000]), Size: 3000})
	}
	if err := a.PutRecipe(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s, c.SHA256); !bytes.Equal(got, whole) {
		t.Errorf("%d bytes", len(got))
	}
	if _, err := s.Here(t.Context(), c.SHA256); !errs.Is(err, errs.NotFound) {
		t.Error("it was stored a second time, as one blob")
	}
	other, b := pair(t)
	b.Store = a.Store
	if err := other.Ensure(t.Context(), c); err != nil || !has(t, other, c.SHA256, c.Size) {
		t.Errorf("ensured: %v", err)
	}
	if err := other.Ensure(t.Context(), content.Content{SHA256: content.DigestOf(nil), Size: 1}); !errs.Is(err, errs.NotFound) {
		t.Errorf("what nobody has: %v", err)
	}
}

// liar has recipes in which each of two blobs is the only chunk of the other. It has
// neither blob.
type liar struct{ a, b string }

func (l liar) Blob(context.Context, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "it has nothing")
}

func (l liar) Recipe(_ context.Context, sum string) (content.Content, error) {
	part := l.a
	if sum == l.a {
		part = l.b
	}
	return content.Content{SHA256: sum, Size: 1, Chunks: []content.Chunk{{SHA256: part, Size: 1}}}, nil
}

func TestRecipesThatLeadToEachOtherEnd(t *testing.T) {
	s := open(t, t.TempDir())
	l := liar{content.DigestOf([]byte("a")), content.DigestOf([]byte("b"))}
	s.AskElsewhere(l)
	for _, sum := range []string{l.a, l.b} {
		if _, err := s.Recipe(t.Context(), sum); err != nil {
			t.Fatal(err)
		}
	}
	for name, do := range map[string]func() error{
		"suspect": func() error { return s.Suspect(t.Context(), l.a) },
		"ensure":  func() error { return s.Ensure(t.Context(), content.Content{SHA256: l.a, Size: blob.RecipeFrom}) },
		"open": func() error {
			_, err := s.Open(t.Context(), l.a)
			return err
		},
	} {
		if err := do(); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
