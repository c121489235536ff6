package blob_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

func open(t *testing.T, dir string) *blob.Store {
	t.Helper()
	s, err := blob.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *blob.Store, b []byte) string {
	t.Helper()
	sum, err := s.Put(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func has(t *testing.T, s *blob.Store, sum string, size int64) bool {
	t.Helper()
	there, err := s.Has(t.Context(), sum, size)
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// noise returns n bytes that cannot be compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

func read(t *testing.T, s *blob.Store, sum string) []byte {
	t.Helper()
	r, err := s.Open(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOtherUsersDoNotEnterTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	for _, when := range []string{"new", "of an earlier version"} {
		if _, err := blob.Open(dir); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(dir); err != nil || fi.Mode()&0o007 != 0 {
			t.Errorf("%s: %v, %v", when, fi.Mode(), err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInterruptedWritesAreClearedWhenTheyAreOld(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	left, fresh := filepath.Join(dir, "incoming", "blob-1"), filepath.Join(dir, "incoming", "blob-2")
	for _, f := range []string{left, fresh} {
		if err := os.WriteFile(f, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spool := filepath.Join(dir, "incoming", "spool")
	if err := os.MkdirAll(filepath.Join(spool, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-24 * time.Hour)
	for _, path := range []string{left, spool} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	sum := put(t, store, []byte("whole"))
	again := open(t, dir)
	for _, path := range []string{left, spool} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what an interrupted write left is still there: %s, %v", path, err)
		}
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("another replica's write is gone: %v", err)
	}
	if b := read(t, again, sum); string(b) != "whole" {
		t.Errorf("the whole blob reads %q", b)
	}
}

func TestWhatCompressesWellLiesCompressedAndReadsTheSame(t *testing.T) {
	s := open(t, t.TempDir())
	for name, c := range map[string]struct {
		b      []byte
		packed bool
	}{
		"nothing": {nil, false}, "little": {[]byte("level=1\n"), false}, "text": {bytes.Repeat([]byte("level=1\n"), 1e5), true},
		"noise": {noise(300_000), false}, "noise, then text": {append(noise(100_000), make([]byte, 1e6)...), false},
	} {
		t.Run(name, func(t *testing.T) {
			sum := put(t, s, c.b)
			if !has(t, s, sum, int64(len(c.b))) || has(t, s, sum, int64(len(c.b))+1) {
				t.Error("its size is not known")
			}
			b, err := s.Lookup(t.Context(), sum)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if b.Packed != c.packed || b.Size != int64(len(c.b)) {
				t.Errorf("packed %v, %d bytes", b.Packed, b.Size)
			}
			if got := read(t, s, sum); !bytes.Equal(got, c.b) {
				t.Errorf("%d bytes came back", len(got))
			}
		})
	}
}

// damage changes the last byte of a stored blob.
func damage(t *testing.T, dir, sum string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, sum[:2], sum+"*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestACorruptBlobIsPutAsideAndStoredAnew(t *testing.T) {
	for name, content := range map[string][]byte{"raw": noise(5000), "compressed": make([]byte, 5000)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			sum := put(t, s, content)
			damage(t, dir, sum)
			var told []blob.File
			s.TellDamage(func(f blob.File, path string) {
				if told = append(told, f); !strings.HasPrefix(path, filepath.Join(dir, sum[:2], sum)) {
					t.Errorf("it was read at %s", path)
				}
			})
			if _, err := s.Open(t.Context(), sum); !errs.Is(err, errs.NotFound) {
				t.Errorf("got %v", err)
			}
			if _, err := s.Open(t.Context(), sum); !errs.Is(err, errs.NotFound) || len(told) != 1 || told[0].Sum != sum {
				t.Errorf("got %v, told of %+v", err, told)
			}
			if has(t, s, sum, 5000) {
				t.Error("it is still said to be there")
			}
			if again := put(t, s, content); again != sum || !bytes.Equal(read(t, s, sum), content) {
				t.Error("it was not stored anew")
			}
		})
	}
}

func TestPuttingContentHealsWhatLiesThereDamaged(t *testing.T) {
	for name, content := range map[string][]byte{"raw": noise(5000), "compressed": make([]byte, 5000)} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sum := put(t, open(t, dir), content)
			damage(t, dir, sum)
			s := open(t, dir) // another process, which has not verified it
			if again := put(t, s, content); again != sum || !bytes.Equal(read(t, s, sum), content) {
				t.Error("it was not stored anew")
			}
		})
	}
}

func TestWhatWasPutAsideIsKeptForAMonth(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	sum := put(t, s, noise(5000))
	path, aside := filepath.Join(dir, sum[:2], sum), filepath.Join(dir, "corrupt", sum)
	old := time.Now().Add(-365 * 24 * time.Hour)
	if err := errors.Join(os.WriteFile(path, []byte("damaged"), 0o600), os.Chtimes(path, old, old)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Here(t.Context(), sum); !errs.Is(err, errs.NotFound) {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Stat(aside); err != nil {
		t.Errorf("what has just been put aside is gone: %v", err)
	}
	old = time.Now().Add(-40 * 24 * time.Hour)
	if err := os.Chtimes(aside, old, old); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Stat(aside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a month it is still there: %v", err)
	}

	// Old files are also removed while the service runs.
	if err := errors.Join(os.WriteFile(aside, nil, 0o600), os.Chtimes(aside, old, old)); err != nil {
		t.Fatal(err)
	}
	another := put(t, s, noise(6000))
	if err := os.WriteFile(filepath.Join(dir, another[:2], another), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Here(t.Context(), another); !errs.Is(err, errs.NotFound) {
		t.Fatal(err)
	}
	if _, err := os.Stat(aside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there when something else is put aside: %v", err)
	}
}

func TestASuspectBlobIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	sum := put(t, s, noise(5000))
	read(t, s, sum) // verified now
	path := filepath.Join(dir, sum[:2], sum)
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("x"), 17)
	if err := errors.Join(err, f.Close(), os.Chtimes(path, fi.ModTime(), fi.ModTime())); err != nil { // keep the time, as a failing disk would
		t.Fatal(err)
	}
	if err := s.Suspect(t.Context(), sum); !errs.Is(err, errs.NotFound) {
		t.Errorf("got %v", err)
	}
}

func TestALargeFileIsHadByTheHashOfTheWhole(t *testing.T) {
	s := open(t, t.TempDir())
	whole := noise(9000)
	sum := sha256.Sum256(whole)
	c := content.Content{SHA256: hex.EncodeToString(sum[:]), Size: 9000}
	for n := 0; n < len(whole); n += 3000 {
		c.Chunks = append(c.Chunks, content.Chunk{SHA256: put(t, s, whole[n:n+3000]), Size: 3000})
	}
	if has(t, s, c.SHA256, c.Size) {
		t.Error("it is said to be there before it is known what it is joined from")
	}
	if err := s.PutRecipe(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if !has(t, s, c.SHA256, c.Size) || !bytes.Equal(read(t, s, c.SHA256), whole) {
		t.Error("it cannot be had")
	}
	for _, bad := range []string{"", "..", "../../etc/passwd", strings.Repeat("g", 64), strings.Repeat("A", 64)} {
		if _, err := s.Open(t.Context(), bad); !errs.Is(err, errs.Malformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestWhatWasStoredAnewIsNotSetAside(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	content := noise(5000)
	sum := put(t, s, content)
	path := filepath.Join(dir, sum[:2], sum)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// One reader sets the damaged file aside and the blob is written again, while another
	// reader still holds the old file.
	if err := s.SetAside(t.Context(), blob.File{Sum: sum, Size: 5000}, f); err != nil {
		t.Fatal(err)
	}
	if has(t, s, sum, 5000) {
		t.Fatal("it was not put aside")
	}
	put(t, s, content)
	if err := s.SetAside(t.Context(), blob.File{Sum: sum, Size: 5000}, f); err != nil {
		t.Error(err)
	}
	if !has(t, s, sum, 5000) || !bytes.Equal(read(t, s, sum), content) {
		t.Error("the sound one was put aside")
	}
}
