package blobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	chunkDir = "chunks"
	// maxChunk is the largest piece that is taken, in bytes: it is held in memory.
	maxChunk = 16 << 20
)

// donor is where another file of the cache holds a piece.
type donor struct {
	path   string
	offset int64
}

// chunkPath is where a piece stands, or would.
func (c *Cache) chunkPath(hash string) string { return filepath.Join(c.dir, chunkDir, hash[:2], hash) }

// assemble joins a large file from its pieces: those another file here has, as an older
// version mostly does, those that came earlier, and the rest, which is fetched first.
func (c *Cache) assemble(ctx context.Context, e fleet.ManifestEntry, path string) error {
	if err := checkChunks(e); err != nil {
		return err
	}
	donors := c.donors(e)
	var wanted []fleet.Chunk
	for _, ch := range distinct(e.Chunks) {
		if _, ok := donors[ch.SHA256]; !ok {
			wanted = append(wanted, ch)
		}
	}
	err := each(ctx, wanted, func(ctx context.Context, ch fleet.Chunk) error {
		_, err := c.chunk(ctx, ch)
		return err
	})
	if err != nil {
		return err
	}
	if err := write(path, func(w io.Writer) error { return c.joinTo(ctx, w, e, donors) }); err != nil {
		return err
	}
	c.dropChunks(e.Chunks)
	return nil
}

// checkChunks refuses pieces that cannot give the file.
func checkChunks(e fleet.ManifestEntry) error {
	var size int64
	for _, ch := range e.Chunks {
		if !hashPattern.MatchString(ch.SHA256) || ch.Size <= 0 || ch.Size > maxChunk {
			return errs.New(errs.Invalid, "a piece of %d bytes with hash %q is none", ch.Size, ch.SHA256)
		}
		size += ch.Size
	}
	if size != e.Size {
		return errs.New(errs.Invalid, "pieces of %d bytes do not give a file of %d", size, e.Size)
	}
	return nil
}

func distinct(chunks []fleet.Chunk) []fleet.Chunk {
	by := map[string]fleet.Chunk{}
	for _, ch := range chunks {
		by[ch.SHA256] = ch
	}
	return slices.Collect(maps.Values(by))
}

// joinTo writes the pieces in order and verifies the whole.
func (c *Cache) joinTo(ctx context.Context, w io.Writer, e fleet.ManifestEntry, donors map[string]donor) error {
	whole := sha256.New()
	for _, ch := range e.Chunks {
		b, err := c.piece(ctx, ch, donors)
		if err != nil {
			return err
		}
		whole.Write(b)
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(whole.Sum(nil)); got != e.SHA256 {
		return errs.As(errs.Unavailable, "blobs.assemble", fmt.Errorf("the pieces of %s give a file with hash %s", e.SHA256, got))
	}
	return nil
}

// piece is a piece's content, from a donor where it is sound, else as it was fetched.
func (c *Cache) piece(ctx context.Context, ch fleet.Chunk, donors map[string]donor) ([]byte, error) {
	if d, ok := donors[ch.SHA256]; ok {
		if b, err := readRange(d, ch.Size); err == nil && hashOf(b) == ch.SHA256 {
			return b, nil
		}
		c.forget(d.path) // it is damaged, or gone
	}
	for n := 1; ; n++ {
		path, err := c.chunk(ctx, ch)
		if err != nil {
			return nil, err
		}
		// Whoever joined another file of it may have removed it just now.
		if b, err := os.ReadFile(path); err == nil && hashOf(b) == ch.SHA256 {
			return b, nil
		} else if n == tries {
			return nil, errs.As(errs.Unavailable, "blobs.piece", fmt.Errorf("piece %s does not stay as it came: %w", ch.SHA256, err))
		}
		c.forget(path)
	}
}

func readRange(d donor, size int64) ([]byte, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, size)
	_, err = f.ReadAt(b, d.offset)
	return b, err
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// chunk is the file that holds a piece, fetched if it is not here.
func (c *Cache) chunk(ctx context.Context, ch fleet.Chunk) (string, error) {
	return c.stand(ctx, ch.SHA256, c.chunkPath, func(ctx context.Context, path string) error {
		return c.download(ctx, download{hash: ch.SHA256, limit: ch.Size, path: path, open: c.source.Blob})
	})
}

// forget has a file verified before it is used again.
func (c *Cache) forget(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.verified, path)
}

// dropChunks removes the pieces of a file that is whole.
func (c *Cache) dropChunks(chunks []fleet.Chunk) {
	for _, ch := range distinct(chunks) {
		path := c.chunkPath(ch.SHA256)
		_ = os.Remove(path) // most were never fetched
		c.mu.Lock()
		delete(c.verified, path)
		c.stock.remove(path)
		c.mu.Unlock()
	}
}

// donors are the files here that hold pieces of an entry, as the versions used last know.
func (c *Cache) donors(e fleet.ManifestEntry) map[string]donor {
	wanted := map[string]bool{}
	for _, ch := range e.Chunks {
		wanted[ch.SHA256] = true
	}
	found := map[string]donor{}
	for _, m := range c.atHand() {
		for _, other := range m.Entries {
			if len(other.Chunks) > 0 && other.SHA256 != e.SHA256 && hashPattern.MatchString(other.SHA256) {
				c.offer(other, wanted, found)
			}
		}
	}
	return found
}

// offer notes which wanted pieces a file holds, if it is here.
func (c *Cache) offer(e fleet.ManifestEntry, wanted map[string]bool, found map[string]donor) {
	path := c.path(e.SHA256)
	if fi, err := os.Stat(path); err != nil || fi.Size() != e.Size {
		return
	}
	var offset int64
	for _, ch := range e.Chunks {
		if wanted[ch.SHA256] {
			found[ch.SHA256] = donor{path: path, offset: offset}
		}
		offset += ch.Size
	}
}

// atHand are the manifests that can be read without asking anybody: of the versions
// used last and of those in memory.
func (c *Cache) atHand() []fleet.Manifest {
	c.recall()
	c.mu.Lock()
	all := maps.Clone(c.manifests)
	digests := slices.Clone(c.warm.used)
	c.mu.Unlock()
	for _, d := range digests {
		if _, ok := all[d]; !ok {
			if m, err := readManifest(c.path(d)); err == nil {
				all[d] = m
			}
		}
	}
	return slices.Collect(maps.Values(all))
}
