package integrity_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/store/integrity"
)

// other is the store of another replica.
type other struct{ *blob.Store }

func (o other) Blob(ctx context.Context, sum string) (io.ReadCloser, error) {
	return o.OpenHere(ctx, sum)
}

func (o other) Recipe(ctx context.Context, sum string) (content.Content, error) {
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

// flip changes one byte of a blob without changing its size and time, as a failing disk
// does.
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
		sum := content.DigestOf([]byte(text))
		if _, err := mine.ReadAll(t.Context(), sum); err != nil { // mark it as verified
			t.Fatal(err)
		}
		flip(t, dir, sum)
	}
	put(t, theirs, "damaged")
	found := map[blob.Health]int{}
	s := integrity.Scrubber{Store: mine, Every: time.Nanosecond, Seen: func(h blob.Health) { found[h]++ }, Log: slog.New(slog.DiscardHandler)}
	if err := s.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found[blob.Sound] < 1 || found[blob.Healed] != 1 || found[blob.Corrupt] != 1 {
		t.Errorf("found %v", found)
	}
	if b, err := mine.ReadAll(t.Context(), content.DigestOf([]byte("damaged"))); err != nil || string(b) != "damaged" {
		t.Errorf("healed, it reads %q, %v", b, err)
	}
	if there, err := mine.Has(t.Context(), content.DigestOf([]byte("lost")), 4); there || err != nil {
		t.Errorf("what is lost is said to be there, %v", err)
	}
	clear(found)
	if err := s.Pass(t.Context()); err != nil || found[blob.Sound] != 2 || len(found) != 1 {
		t.Errorf("the second time: %v, %v", found, err)
	}
}

// replace replaces a stored file by a link to target.
func replace(t *testing.T, dir, sum, target string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, sum[:2], sum+"*"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	if err := errors.Join(os.Remove(paths[0]), os.Symlink(target, paths[0])); err != nil {
		t.Fatal(err)
	}
}

// badSectors is a file that can be opened, but fails with EIO when it is read.
const badSectors = "/proc/self/mem"

// pass runs a pass. It returns the number of files per result, and the log.
func pass(t *testing.T, s *blob.Store) (found map[blob.Health]int, said string, err error) {
	t.Helper()
	var log bytes.Buffer
	found = map[blob.Health]int{}
	err = (&integrity.Scrubber{
		Store: s, Every: time.Nanosecond, Seen: func(h blob.Health) { found[h]++ }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}).Pass(t.Context())
	return found, log.String(), err
}

func TestABadSectorIsDamageOfItsBlobAndThePassGoesOn(t *testing.T) {
	dir := t.TempDir()
	mine, theirs := open(t, dir), open(t, t.TempDir())
	mine.AskElsewhere(other{theirs})
	packed, whole := strings.Repeat("compressible ", 200), strings.Repeat("a", 64)
	for _, text := range []string{"sound", "bad", "lost", packed} {
		put(t, mine, text)
	}
	recipe := content.Content{SHA256: whole, Size: 5, Chunks: []content.Chunk{{SHA256: content.DigestOf([]byte("sound")), Size: 5}}}
	for _, s := range []*blob.Store{mine, theirs} {
		if err := s.PutRecipe(t.Context(), recipe); err != nil {
			t.Fatal(err)
		}
	}
	lost := content.DigestOf([]byte("lost"))
	for _, sum := range []string{content.DigestOf([]byte("bad")), lost, content.DigestOf([]byte(packed)), whole} {
		replace(t, dir, sum, badSectors)
	}
	put(t, theirs, "bad")
	put(t, theirs, packed)
	found, said, err := pass(t, mine)
	// A healed blob is read again if it appears in a part that the pass has not reached.
	if err != nil || found[blob.Sound] < 1 || found[blob.Healed] != 3 || found[blob.Corrupt] != 1 || len(found) != 3 {
		t.Errorf("found %v, %v", found, err)
	}
	for _, text := range []string{"bad", packed} {
		if b, err := mine.ReadAll(t.Context(), content.DigestOf([]byte(text))); err != nil || string(b) != text {
			t.Errorf("healed, it reads %q, %v", b, err)
		}
	}
	if c, err := mine.RecipeHere(t.Context(), whole); err != nil || c.Size != 5 {
		t.Errorf("the healed recipe: %+v, %v", c, err)
	}
	if !strings.Contains(said, lost) {
		t.Errorf("it does not name %s: %s", lost, said)
	}
}

func TestAFileThatCannotBeOpenedDoesNotEndThePass(t *testing.T) {
	dir := t.TempDir()
	mine := open(t, dir)
	for _, text := range []string{"one", "two", "three"} {
		put(t, mine, text)
	}
	sum := content.DigestOf([]byte("two"))
	replace(t, dir, sum, filepath.Join(dir, sum[:2], sum))                     // a link to itself
	if err := os.WriteFile(filepath.Join(dir, "00"), nil, 0o600); err != nil { // a directory that cannot be listed
		t.Fatal(err)
	}
	found, said, err := pass(t, mine)
	if err != nil || found[blob.Sound] != 2 || found[blob.Unread] != 1 || !strings.Contains(said, sum) {
		t.Errorf("found %v, %v, and said %s", found, err, said)
	}
}

func TestADiskOfWhichNothingCanBeReadEndsThePass(t *testing.T) {
	dir := t.TempDir()
	mine := open(t, dir)
	for text := range strings.SplitSeq("abcdefghijklmnopqrstuvwxyz", "") {
		sum := put(t, mine, text)
		replace(t, dir, sum, filepath.Join(dir, sum[:2], sum))
	}
	if found, _, err := pass(t, mine); err == nil || found[blob.Unread] >= 26 {
		t.Errorf("found %v, %v", found, err)
	}
}
