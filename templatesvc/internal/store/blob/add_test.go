package blob_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

func stream(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), n) }

func add(t *testing.T, s *blob.Store, r io.Reader) (content.Content, map[string]bool) {
	t.Helper()
	sums := map[string]bool{}
	c, err := s.Add(t.Context(), r, 1<<30, func(sum string) { sums[sum] = true })
	if err != nil {
		t.Fatal(err)
	}
	return c, sums
}

func TestALargeFileIsStoredInChunksAndReadsTheSame(t *testing.T) {
	s := open(t, t.TempDir())
	for _, size := range []int64{0, 1, 1<<20 - 1, 1 << 20, 5<<20 + 7} {
		c, sums := add(t, s, iotest.HalfReader(stream(size)))
		if c.Size != size || (c.Chunks != nil) != (size >= 1<<20) || len(sums) != len(c.Blobs()) {
			t.Errorf("%d bytes: %+v", size, c)
		}
		r, err := s.Join(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		if n, err := io.Copy(h, r); n != size || err != nil || hex.EncodeToString(h.Sum(nil)) != c.SHA256 {
			t.Errorf("%d bytes: %d came back, %v", size, n, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileThatWasStoredAsOneBlobStaysSo(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	whole, err := io.ReadAll(stream(2 << 20))
	if err != nil {
		t.Fatal(err)
	}
	sum := content.DigestOf(whole)
	if err := os.MkdirAll(filepath.Join(dir, sum[:2]), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, sum[:2], sum), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, _ := add(t, s, bytes.NewReader(whole)); c.Chunks != nil || c.SHA256 != sum {
		t.Errorf("got %+v: every old version would be published anew", c)
	}
}

func TestWhatCannotBeReadToItsEndIsNotStored(t *testing.T) {
	s := open(t, t.TempDir())
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		r     io.Reader
		limit int64
		want  errs.Kind
	}{
		"a small file above its limit": {t.Context(), strings.NewReader("four"), 3, errs.TooLarge},
		"a large file above its limit": {t.Context(), stream(4 << 20), 3 << 20, errs.TooLarge},
		"a stream that breaks early":   {t.Context(), iotest.ErrReader(errors.New("cut")), 1 << 30, errs.Unavailable},
		"a stream that breaks late":    {t.Context(), io.MultiReader(stream(3<<20), iotest.ErrReader(errors.New("cut"))), 1 << 30, errs.Unavailable},
		"a stream that breaks a limit": {t.Context(), io.MultiReader(stream(3<<20), iotest.ErrReader(errs.New(errs.TooLarge, "bomb"))), 1 << 30, errs.TooLarge},
		"a caller that went":           {canceled, stream(1), 1 << 30, errs.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.Add(c.ctx, c.r, c.limit, func(string) {}); !errs.Is(err, c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
