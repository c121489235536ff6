package scrub_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/scrub"
)

// other is another replica's store.
type other struct{ *blob.Store }

func (o other) Blob(ctx context.Context, sum string) (io.ReadCloser, error) {
	return o.OpenHere(ctx, sum)
}

func (o other) Recipe(ctx context.Context, sum string) (fleet.Content, error) {
	return o.RecipeHere(ctx, sum)
}

func open(t *testing.T, dir string) *blob.Store {
	t.Helper()
	s, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *blob.Store, text string) string {
	t.Helper()
	sum, err := s.Put(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// flip changes one byte of a blob, as a failing disk does: size and time stay.
func flip(t *testing.T, dir, sum string) {
	t.Helper()
	path := filepath.Join(dir, sum[:2], sum)
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, fi.ModTime(), fi.ModTime()); err != nil {
		t.Fatal(err)
	}
}

func TestAFlippedByteIsFoundAndHealed(t *testing.T) {
	dir := t.TempDir()
	mine, theirs := open(t, dir), open(t, t.TempDir())
	mine.AskElsewhere(other{theirs})
	for _, text := range []string{"sound", "damaged", "lost"} {
		put(t, mine, text)
	}
	for _, text := range []string{"damaged", "lost"} {
		sum := fleet.DigestOf([]byte(text))
		if _, err := mine.ReadAll(t.Context(), sum); err != nil { // its hash is known now
			t.Fatal(err)
		}
		flip(t, dir, sum)
	}
	put(t, theirs, "damaged")
	found := map[blob.Health]int{}
	s := scrub.Scrubber{Store: mine, Every: time.Nanosecond, Seen: func(h blob.Health) { found[h]++ }, Log: slog.New(slog.DiscardHandler)}
	if err := s.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found[blob.Sound] < 1 || found[blob.Healed] != 1 || found[blob.Corrupt] != 1 {
		t.Errorf("found %v", found)
	}
	if b, err := mine.ReadAll(t.Context(), fleet.DigestOf([]byte("damaged"))); err != nil || string(b) != "damaged" {
		t.Errorf("healed, it reads %q, %v", b, err)
	}
	if there, err := mine.Has(t.Context(), fleet.DigestOf([]byte("lost")), 4); there || err != nil {
		t.Errorf("what is lost is said to be there, %v", err)
	}
	clear(found)
	if err := s.Pass(t.Context()); err != nil || found[blob.Sound] != 2 || len(found) != 1 {
		t.Errorf("the second time: %v, %v", found, err)
	}
}
