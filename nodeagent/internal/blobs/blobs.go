// Package blobs is the node's cache of template content: files named by the
// SHA-256 of what they hold.
//
//	DIR/ab/HASH          a file's content, or a manifest
//	DIR/partial/HASH     a large file on its way, with holes
//	DIR/versions/DIGEST  empty; its time is when that version was used last
//	DIR/artifacts/HASH   the same of an artifact of the catalog
//	DIR/warm             which versions are wholly here
//
// Invariants:
//   - What stands under a hash was verified against it in this agent's life before
//     anybody gets to see it; a damaged file is fetched anew.
//   - A blob is fetched once, however many ask for it at the same time.
//   - A file appears whole or not at all. A large file's pieces that have come stay
//     where they belong in it until it is whole, also past the agent's death; what an
//     earlier attempt left is hashed before it counts as come.
//   - Whatever its size, what comes is held in memory block by block, one for each of
//     those that are fetched at once.
//   - It holds no more than its limit, but for what is in use and, while a large file is
//     made, for the files in their turn to go of which it takes the most; what was not
//     used for longest goes first, and nothing that somebody holds or needs.
package blobs

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Source is where content comes from. What it sends is verified here. Exhausted is its own
// disk's, or another limit of it, and Unavailable for whoever asks the cache.
type Source interface {
	// Manifest opens a template version's manifest by its digest. NotFound when nobody has it.
	Manifest(ctx context.Context, digest string) (io.ReadCloser, error)
	// Blob opens content by its hash; the caller closes it. NotFound when nobody has it.
	Blob(ctx context.Context, sha256 string) (io.ReadCloser, error)
	// Row opens several blobs as one reader: the first and, as far as they are at hand, those
	// after it, without a gap. NotFound also when it can only send one at a time.
	Row(ctx context.Context, sha256s []string) (io.ReadCloser, error)
	// Suspect says that what came under a hash did not have it.
	Suspect(ctx context.Context, sha256 string) error

	// Artifact opens an artifact of the catalog by its hash; the caller closes it.
	// Conflict, naming both hashes, when the catalog's URL has something else.
	Artifact(ctx context.Context, sha256 string) (io.ReadCloser, error)
}

const (
	// parallel is how many blobs are fetched at once.
	parallel = 12
	// keepManifests bounds the manifests held in memory.
	keepManifests = 64
	// chunkDir held the pieces of large files until agents wrote them in place.
	chunkDir = "chunks"
	// maxManifest is the largest manifest that is read, in bytes.
	maxManifest = 64 << 20
)

// Cache is a directory of blobs. It is safe for concurrent use.
type Cache struct {
	dir    string
	source Source
	limit  int64 // in bytes; 0: none
	slots  chan struct{}
	blocks sync.Pool // of *[]byte, blockSize each
	// unshared is true once the filesystem has said that files never share blocks here.
	unshared atomic.Bool

	mu        sync.Mutex
	flights   map[string]*flight // by path
	verified  map[string]stamp   // by path
	manifests map[string]fleet.Manifest
	lists     map[string]list // by digest, of versions that stand here
	warm      warmth
	stock     stock

	remember, count sync.Once
}

// stamp is how a verified file looked; a file that looks the same was not touched.
type stamp struct {
	size    int64
	changed time.Time
}

// Open makes the cache's directory when it is missing. limit is what it holds at most,
// in bytes, but for what is in use; 0 sets none.
func Open(dir string, source Source, limit int64) (*Cache, error) {
	// The content of all groups is in it: nobody but the agent enters it.
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, versionDir), 0o700), os.Chmod(dir, 0o700)); err != nil {
		return nil, errs.As(errs.Unavailable, "blobs.Open", err)
	}
	_ = os.RemoveAll(filepath.Join(dir, chunkDir)) // what is left of it takes room, and no more
	return &Cache{
		dir: dir, source: border{source}, limit: limit, slots: make(chan struct{}, parallel),
		flights: map[string]*flight{}, verified: map[string]stamp{}, manifests: map[string]fleet.Manifest{}, lists: map[string]list{},
		stock: stock{sizes: map[string]int64{}, pins: map[string]int{}, needs: map[string]Needs{}, going: map[string]int{}},
	}, nil
}

// Manifest is the content list of a template version. Errors are the source's; a list
// that does not have the digest it was asked for by is Unavailable, one that must not be
// placed Invalid or TooLarge.
func (c *Cache) Manifest(ctx context.Context, digest string) (fleet.Manifest, error) {
	c.mu.Lock()
	m, ok := c.manifests[digest]
	c.mu.Unlock()
	if ok {
		return m, nil
	}
	path, err := c.listFile(ctx, digest)
	if errs.Is(err, errs.Exhausted) && ctx.Err() == nil && c.free(maxManifest) {
		path, err = c.listFile(ctx, digest)
	}
	if err != nil {
		return fleet.Manifest{}, err
	}
	if m, err = c.checked(path, digest); err != nil {
		return fleet.Manifest{}, errs.Wrap("blobs.Manifest", err)
	}
	c.seen(digest)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.manifests) >= keepManifests {
		clear(c.manifests)
	}
	c.manifests[digest] = m
	return m, nil
}

// listFile is the file that holds a manifest, fetched if it is missing or damaged.
func (c *Cache) listFile(ctx context.Context, digest string) (string, error) {
	return c.stand(ctx, digest, c.path, func(ctx context.Context, path string) error {
		return c.download(ctx, download{hash: digest, limit: maxManifest, path: path, open: c.source.Manifest})
	})
}

// checked is a list that may be placed: names that no file may have, and names that are no
// text, are refused whoever published them.
func (c *Cache) checked(path, digest string) (fleet.Manifest, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		c.forget(path)
		return fleet.Manifest{}, errs.As(errs.Unavailable, "blobs.checked", err)
	}
	if !utf8.Valid(b) { // reading it as JSON would make other names of them
		return fleet.Manifest{}, errs.New(errs.Invalid, "its list of files is not valid UTF-8")
	}
	m, err := fleet.DecodeManifest(b, digest, fleet.VersionLimits())
	if errs.Is(err, errs.Unavailable) { // it was damaged since it was verified
		c.forget(path)
	}
	return m, err
}

func readManifest(path string) (m fleet.Manifest, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// File is the file that holds an entry's content, fetched if it is missing or damaged.
// Nobody may write to it. Exhausted when the disk is full.
func (c *Cache) File(ctx context.Context, e fleet.ManifestEntry) (string, error) {
	return c.file(ctx, e, c.findDonors([]fleet.ManifestEntry{e}))
}

func (c *Cache) file(ctx context.Context, e fleet.ManifestEntry, donors donors) (string, error) {
	return c.stand(ctx, e.SHA256, c.path, func(ctx context.Context, path string) error {
		if len(e.Chunks) > 0 {
			return c.assemble(ctx, e, path, donors)
		}
		return c.download(ctx, download{hash: e.SHA256, limit: e.Size, path: path, open: c.source.Blob})
	})
}

// path is where a blob stands, or would.
func (c *Cache) path(hash string) string { return filepath.Join(c.dir, hash[:2], hash) }

// known reports whether a file was verified and still looks the same.
func (c *Cache) known(path string) bool {
	c.mu.Lock()
	want, ok := c.verified[path]
	c.mu.Unlock()
	if !ok {
		return false
	}
	fi, err := os.Stat(path)
	return err == nil && stampOf(fi) == want
}

func stampOf(fi fs.FileInfo) stamp { return stamp{fi.Size(), fi.ModTime()} }

func (c *Cache) note(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return errs.As(errs.Unavailable, "blobs.note", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified[path] = stampOf(fi)
	c.stock.put(path, fi.Size())
	return nil
}

// disk tells a full disk from other trouble.
func disk(op string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.As(errs.Exhausted, op, err)
	}
	return errs.As(errs.Unavailable, op, err)
}
