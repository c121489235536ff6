package git

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/orreryhq/orrery/libs/errs"
)

// Bounds of a pack. Its objects are unpacked into memory one by one when it is indexed,
// and a delta together with what it is a delta of: what a pack may do to this process is
// known from its headers, before that.
const (
	maxObject  = 128 << 20 // bytes of a file
	maxStruct  = 16 << 20  // bytes of a commit, a directory or a tag
	maxObjects = 2_000_000
	maxDepth   = 300 // deltas of deltas; git makes 50, and 250 when told to be thorough
	// maxWork bounds what resolving all deltas may cost, in bytes: each may have to be
	// made from the bottom of its chain.
	maxWork = 64 << 30
	// named bounds the objects whose hash is found out to name them, in bytes.
	named = 4 << 30
	// chained is how deep a delta is taken to be whose base is not known yet.
	chained = 50
	// sizes is enough of a delta to read the two sizes it begins with.
	sizes = 2 * binary.MaxVarintLen64
)

// link is what is known of an object that others may be deltas of.
type link struct {
	kind  plumbing.ObjectType // AnyObject when it is not known
	depth int
}

// checkPack refuses a pack that would cost too much to unpack. TooLarge names what is
// too large in it. It reads all of the pack once, in a few KiB of memory for each object.
func checkPack(ctx context.Context, pack io.ReadSeeker) error {
	scan := packfile.NewScanner(pack)
	_, count, err := scan.Header()
	if err != nil {
		return err
	}
	if count > maxObjects {
		return errs.New(errs.TooLarge, "the repository sends %d objects, more than the %d allowed: let the server give out single commits, or split it", count, maxObjects)
	}
	links := map[int64]link{}
	work := int64(0)
	for range count {
		if err := ctx.Err(); err != nil {
			return errs.Wrap("git.checkPack", err)
		}
		h, err := scan.NextObjectHeader()
		if err != nil {
			return err
		}
		at, size, err := checkObject(scan, h, links)
		if err != nil {
			return err
		}
		links[h.Offset] = at
		if work += size * int64(at.depth); work > maxWork {
			return errs.New(errs.TooLarge, "the repository's objects are deltas of each other in a way that costs too much to unpack: repack it (git repack -a -d -f)")
		}
	}
	return nil
}

// checkObject reads past one object. size is what it unpacks to.
func checkObject(scan *packfile.Scanner, h *packfile.ObjectHeader, links map[int64]link) (at link, size int64, err error) {
	begin := &beginning{}
	if !h.Type.IsDelta() {
		at.kind = h.Type
		if h.Length > limitOf(h.Type) {
			return at, h.Length, tooLarge(scan, h)
		}
		_, _, err = scan.NextObject(begin)
		return at, h.Length, err
	}
	base, known := links[h.OffsetReference]
	if h.Type == plumbing.REFDeltaObject || !known {
		base = link{kind: plumbing.AnyObject, depth: chained}
	}
	at = link{kind: base.kind, depth: base.depth + 1}
	if h.Length > maxObject {
		return at, h.Length, errs.New(errs.TooLarge, "a change that the repository sends has %d MiB, more than the %d MiB allowed: split it", h.Length>>20, maxObject>>20)
	}
	if _, _, err = scan.NextObject(begin); err != nil {
		return at, 0, err
	}
	from, to, ok := begin.sizes()
	switch {
	case !ok:
		return at, 0, packfile.ErrMalformedPackFile
	case from > maxObject || to > uint64(limitOf(at.kind)):
		return at, 0, errs.New(errs.TooLarge, "a file of the repository unpacks to %d MiB, more than the %d MiB allowed: take it out of the repository, and bring it by a source of kind http or s3",
			max(from, to)>>20, limitOf(at.kind)>>20)
	case at.depth > maxDepth:
		return at, 0, errs.New(errs.TooLarge, "the repository's objects are deltas of each other, more than %d deep: repack it (git repack -a -d -f)", maxDepth)
	}
	return at, int64(max(from, to)), nil
}

func limitOf(kind plumbing.ObjectType) int64 {
	if kind == plumbing.BlobObject || kind == plumbing.AnyObject {
		return maxObject
	}
	return maxStruct
}

// tooLarge names an object by its hash, which is found out without keeping it.
func tooLarge(scan *packfile.Scanner, h *packfile.ObjectHeader) error {
	name := "an object"
	if h.Length <= named {
		hash := plumbing.NewHasher(h.Type, h.Length)
		if _, _, err := scan.NextObject(hash); err != nil {
			return err
		}
		sum := hash.Sum()
		name = "the " + h.Type.String() + " " + hex.EncodeToString(sum[:])
	}
	return errs.New(errs.TooLarge, "%s of the repository has %d MiB, more than the %d MiB allowed (git ls-tree -r HEAD tells its file): take it out of the repository, and bring it by a source of kind http or s3",
		name, h.Length>>20, limitOf(h.Type)>>20)
}

// beginning keeps the first bytes that are written.
type beginning struct {
	bytes [sizes]byte
	n     int
}

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	b.n += copy(b.bytes[b.n:], p)
	return len(p), nil
}

// sizes are those that a delta begins with: of what it is one of, and of what it makes.
func (b *beginning) sizes() (from, to uint64, ok bool) {
	from, n := binary.Uvarint(b.bytes[:b.n])
	if n <= 0 {
		return 0, 0, false
	}
	to, m := binary.Uvarint(b.bytes[n:b.n])
	return from, to, m > 0
}

// keep writes a pack to a file and gives it from its beginning. Close removes it.
func keep(dir string, pack io.Reader) (*os.File, error) {
	f, err := os.CreateTemp(dir, "received-*")
	if err != nil {
		return nil, errs.As(errs.Unavailable, "git.keep", err)
	}
	_ = os.Remove(f.Name()) // it is gone when it is closed
	if _, err = io.Copy(f, pack); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
