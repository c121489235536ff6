// Package blobcache caches template content on the node's disk. A blob is a file that
// is named by the SHA-256 of its content.
//
//	DIR/ab/HASH          a file's content, or a manifest
//	DIR/partial/HASH     a large file that is being fetched; a sparse file
//	DIR/versions/DIGEST  empty; its modification time is when the version was last used
//	DIR/artifacts/HASH   the same for an artifact of the catalog
//	DIR/warm             the versions whose content is completely in the cache
//
// Invariants:
//   - The cache returns a blob only after it verified the blob's hash in this process.
//     It fetches a corrupt file again.
//   - Concurrent requests for the same blob share one fetch.
//   - A blob appears completely or not at all. Fetched chunks of a large file stay in
//     DIR/partial until the file is complete, also across restarts of the agent. Chunks of
//     an earlier attempt count only after they were hashed.
//   - A fetch buffers one block in memory, whatever the size of the file.
//   - The cache evicts the least recently used content to stay below its limit. It never
//     evicts content that is pinned or needed. It may exceed the limit by such content, and
//     while a large file is assembled from a cached file that is evicted afterwards.
package blobcache

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

const (
	// parallel is how many blobs are fetched concurrently.
	parallel = 12
	// keepManifests limits the number of manifests in memory.
	keepManifests = 64
	// maxManifest is the maximum size of a manifest, in bytes.
	maxManifest = 64 << 20
)

// Cache is a directory of blobs. It is safe for concurrent use.
type Cache struct {
	dir    string
	source Source
	limit  int64 // in bytes; 0 means unlimited
	slots  chan struct{}
	blocks sync.Pool // of *[]byte, blockSize each
	// noClone is true once the filesystem has reported that it cannot clone blocks.
	noClone atomic.Bool

	mu        sync.Mutex
	flights   map[string]*flight // by path
	verified  map[string]stamp   // by path
	manifests map[string]content.Manifest
	contents  map[string]versionContents // by digest, of versions whose manifest is cached
	warm      warmState
	files     inventory

	warmOnce, scanOnce sync.Once
}

// stamp identifies the state of a verified file. An equal stamp means it is unchanged.
type stamp struct {
	size    int64
	changed time.Time
}

// Open opens the cache in dir and creates the directory if it is missing. limit is the
// maximum size of unused content in bytes; 0 means unlimited.
func Open(dir string, source Source, limit int64) (*Cache, error) {
	// Only the agent may read the directory, because it holds the content of all groups.
	err := errors.Join(os.MkdirAll(filepath.Join(dir, versionDir), 0o700), os.MkdirAll(filepath.Join(dir, artifactDir), 0o700), os.Chmod(dir, 0o700))
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "blobcache.Open", err)
	}
	return &Cache{
		dir: dir, source: source, limit: limit, slots: make(chan struct{}, parallel),
		flights: map[string]*flight{}, verified: map[string]stamp{}, manifests: map[string]content.Manifest{}, contents: map[string]versionContents{},
		files: inventory{sizes: map[string]int64{}, pins: map[string]int{}, needs: map[string]Needs{}, deferred: map[string]int{}},
	}, nil
}

// Manifest returns the manifest of a template version. It returns the errors of the source,
// Unavailable if the content does not match the digest, and Invalid or TooLarge if the
// manifest may not be written to a directory.
func (c *Cache) Manifest(ctx context.Context, digest string) (content.Manifest, error) {
	c.mu.Lock()
	m, ok := c.manifests[digest]
	c.mu.Unlock()
	if ok {
		return m, nil
	}
	path, err := c.manifestFile(ctx, digest)
	if errs.Is(err, errs.Exhausted) && ctx.Err() == nil && c.freeDisk(maxManifest) {
		path, err = c.manifestFile(ctx, digest)
	}
	if err != nil {
		return content.Manifest{}, err
	}
	if m, err = c.readChecked(path, digest); err != nil {
		return content.Manifest{}, errs.Wrap("blobcache.Manifest", err)
	}
	c.noteVersion(digest)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.manifests) >= keepManifests {
		clear(c.manifests)
	}
	c.manifests[digest] = m
	return m, nil
}

// manifestFile returns the path of a manifest's file. It fetches a missing or corrupt one.
func (c *Cache) manifestFile(ctx context.Context, digest string) (string, error) {
	return c.ensure(ctx, digest, func(ctx context.Context, path string) error {
		return c.download(ctx, download{hash: digest, limit: maxManifest, path: path, open: c.source.Manifest})
	})
}

// readChecked reads a manifest and rejects entries that may not be written to a directory,
// such as invalid paths.
func (c *Cache) readChecked(path, digest string) (content.Manifest, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		c.unverify(path)
		return content.Manifest{}, errs.WrapAs(errs.Unavailable, "blobcache.readChecked", err)
	}
	if !utf8.Valid(b) { // the JSON decoder would replace the invalid bytes in names
		return content.Manifest{}, errs.New(errs.Invalid, "the manifest is not valid UTF-8")
	}
	m, err := content.DecodeManifest(b, digest, content.VersionLimits())
	if errs.Is(err, errs.Unavailable) { // the file was corrupted after its verification
		c.unverify(path)
	}
	return m, err
}

func readManifest(path string) (m content.Manifest, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// File returns the path of the file with an entry's content. It fetches a missing or corrupt
// file. Callers must not write to the file. It returns Exhausted if the disk is full.
func (c *Cache) File(ctx context.Context, e content.ManifestEntry) (string, error) {
	return c.file(ctx, e, c.indexChunks([]content.ManifestEntry{e}))
}

func (c *Cache) file(ctx context.Context, e content.ManifestEntry, index chunkIndex) (string, error) {
	return c.ensure(ctx, e.SHA256, func(ctx context.Context, path string) error {
		if len(e.Chunks) > 0 {
			return c.assemble(ctx, e, path, index)
		}
		return c.download(ctx, download{hash: e.SHA256, limit: e.Size, path: path, open: c.source.Blob})
	})
}

// path is the path of a blob, whether it is cached or not.
func (c *Cache) path(hash string) string { return filepath.Join(c.dir, hash[:2], hash) }

// isVerified reports whether a file was verified and is unchanged since then.
func (c *Cache) isVerified(path string) bool {
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

func (c *Cache) markVerified(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "blobcache.note", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified[path] = stampOf(fi)
	c.files.put(path, fi.Size())
	return nil
}

// diskError returns Exhausted for a full disk and Unavailable for other errors.
func diskError(op string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return errs.WrapAs(errs.Exhausted, op, err)
	}
	return errs.WrapAs(errs.Unavailable, op, err)
}
