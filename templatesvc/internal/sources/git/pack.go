package git

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
)

// Limits of a pack. Indexing unpacks each object into memory, and each delta together with
// its base. The headers tell the necessary memory and work, so they are checked first.
const (
	maxObject  = 128 << 20 // bytes of a file
	maxStruct  = 16 << 20  // bytes of a commit, a directory or a tag
	maxObjects = 2_000_000
	maxDepth   = 300 // length of a delta chain; git creates 50, or 250 with --aggressive
	// maxWork is the maximum cost of resolving all deltas in bytes. Each may have to be
	// rebuilt from the start of its chain.
	maxWork = 64 << 30
	// named is the maximum size in bytes of an object that is hashed only for an error
	// message.
	named = 4 << 30
	// sizes is the number of bytes that hold the two sizes at the start of a delta.
	sizes = 2 * binary.MaxVarintLen64
)

// link is what is known about an object that may be the base of deltas.
type link struct {
	kind  plumbing.ObjectType // AnyObject while it is unknown
	depth int
	size  int64 // bytes of the object or its base, whichever is larger
	makes int64 // unpacked size in bytes
}

// deltas holds the objects of a pack as far as the headers describe them. A delta whose
// base is known only by its hash is checked when the base is unpacked, just before the
// delta would be. For that, deltas is the observer of the parser.
type deltas struct {
	ctx   context.Context
	links map[int64]link // by offset in the pack
	work  int64          // bytes so far
	// ofHash and ofOffset are the deltas that are not checked yet, by their base.
	ofHash   map[plumbing.Hash][]int64
	ofOffset map[int64][]int64
	unpacked plumbing.ObjectType // kind of the object that is being unpacked
}

// checkPack returns TooLarge, with the object, for a pack that would cost too much to
// unpack. It reads the pack once and needs a few KiB of memory per object.
func checkPack(ctx context.Context, pack io.ReadSeeker) (*deltas, error) {
	scan := packfile.NewScanner(pack)
	_, count, err := scan.Header()
	if err != nil {
		return nil, err
	}
	if count > maxObjects {
		return nil, errs.New(errs.TooLarge, "the repository sends %d objects, more than the %d allowed: let the server give out single commits, or split it", count, maxObjects)
	}
	d := &deltas{ctx: ctx, links: map[int64]link{}, ofHash: map[plumbing.Hash][]int64{}, ofOffset: map[int64][]int64{}}
	for range count {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap("git.checkPack", err)
		}
		h, err := scan.NextObjectHeader()
		if err == nil {
			err = d.read(scan, h)
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// read scans one object.
func (d *deltas) read(scan *packfile.Scanner, h *packfile.ObjectHeader) error {
	if !h.Type.IsDelta() {
		if h.Length > limitOf(h.Type) {
			return tooLarge(scan, h)
		}
		d.links[h.Offset] = link{kind: h.Type, size: h.Length, makes: h.Length}
		if len(d.ofHash) == 0 {
			_, _, err := scan.NextObject(io.Discard)
			return err
		}
		hash := plumbing.NewHasher(h.Type, h.Length) // deltas of it may come first
		if _, _, err := scan.NextObject(hash); err != nil {
			return err
		}
		return d.checkAll(d.ofHash[hash.Sum()], h.Type, 1)
	}
	if h.Length > maxObject {
		return errs.New(errs.TooLarge, "a change that the repository sends has %d MiB, more than the %d MiB allowed: split it", h.Length>>20, maxObject>>20)
	}
	begin := &beginning{}
	if _, _, err := scan.NextObject(begin); err != nil {
		return err
	}
	from, to, ok := begin.sizes()
	switch {
	case !ok:
		return packfile.ErrMalformedPackFile
	case max(from, to) > maxObject:
		return unpacksTo(max(from, to), maxObject)
	}
	d.links[h.Offset] = link{kind: plumbing.AnyObject, size: int64(max(from, to)), makes: int64(to)}
	base, known := d.links[h.OffsetReference]
	switch {
	case h.Type == plumbing.REFDeltaObject:
		d.ofHash[h.Reference] = append(d.ofHash[h.Reference], h.Offset)
	case !known:
		return packfile.ErrMalformedPackFile // a delta must follow its base
	case base.kind == plumbing.AnyObject:
		d.ofOffset[h.OffsetReference] = append(d.ofOffset[h.OffsetReference], h.Offset)
	default:
		return d.check(h.Offset, base.kind, base.depth+1)
	}
	return nil
}

// check stores the kind and depth of a delta, and refuses one that costs too much.
func (d *deltas) check(at int64, kind plumbing.ObjectType, depth int) error {
	is := d.links[at]
	if depth <= is.depth {
		return nil
	}
	d.work += is.size * int64(depth-is.depth)
	is.kind, is.depth = kind, depth
	d.links[at] = is
	switch {
	case is.makes > limitOf(kind):
		return unpacksTo(uint64(is.makes), limitOf(kind))
	case depth > maxDepth:
		return errs.New(errs.TooLarge, "the repository's objects are deltas of each other, more than %d deep: repack it (git repack -a -d -f)", maxDepth)
	case d.work > maxWork:
		return errs.New(errs.TooLarge, "the repository's objects are deltas of each other in a way that costs too much to unpack: repack it (git repack -a -d -f)")
	}
	return nil
}

func (d *deltas) checkAll(all []int64, kind plumbing.ObjectType, depth int) error {
	for _, at := range all {
		if err := d.check(at, kind, depth); err != nil {
			return err
		}
	}
	return nil
}

// OnHeader implements packfile.Observer.
func (d *deltas) OnHeader(uint32) error { return nil }

// OnFooter implements packfile.Observer.
func (d *deltas) OnFooter(plumbing.Hash) error { return nil }

// OnInflatedObjectHeader implements packfile.Observer.
func (d *deltas) OnInflatedObjectHeader(kind plumbing.ObjectType, _, _ int64) error {
	d.unpacked = kind
	return nil
}

// OnInflatedObjectContent implements packfile.Observer. It checks the deltas of the object
// that was unpacked. If several objects have this hash, the largest depth counts.
func (d *deltas) OnInflatedObjectContent(h plumbing.Hash, at int64, _ uint32, _ []byte) error {
	depth := d.links[at].depth + 1
	if err := d.checkAll(d.ofHash[h], d.unpacked, depth); err != nil {
		return err
	}
	if err := d.checkAll(d.ofOffset[at], d.unpacked, depth); err != nil {
		return err
	}
	return errs.Wrap("git.index", d.ctx.Err())
}

func unpacksTo(size uint64, limit int64) error {
	return errs.New(errs.TooLarge, "a file of the repository unpacks to %d MiB, more than the %d MiB allowed: take it out of the repository, and bring it by a source of kind http or s3",
		size>>20, limit>>20)
}

// index indexes a pack and moves it into the repository in dir.
func index(d *deltas, pack *os.File, dir string) error {
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return errs.WrapAs(errs.Unavailable, "git.index", err)
	}
	writer := &idxfile.Writer{}
	parser, err := packfile.NewParser(packfile.NewScanner(pack), d, writer)
	if err != nil {
		return errs.WrapAs(errs.Internal, "git.index", err)
	}
	sum, err := parser.Parse()
	if err != nil {
		return err
	}
	entries, err := writer.Index()
	if err != nil {
		return err
	}
	name := filepath.Join(dir, "objects", "pack", "pack-"+sum.String())
	err = os.MkdirAll(filepath.Dir(name), 0o700)
	if err == nil {
		err = os.Rename(pack.Name(), name+".pack")
	}
	if err != nil {
		return diskerror.Error("git.index", err)
	}
	f, err := os.Create(name + ".idx")
	if err != nil {
		return diskerror.Error("git.index", err)
	}
	_, err = idxfile.NewEncoder(f).Encode(entries)
	return diskerror.Error("git.index", errors.Join(err, f.Close()))
}

func limitOf(kind plumbing.ObjectType) int64 {
	if kind == plumbing.BlobObject || kind == plumbing.AnyObject {
		return maxObject
	}
	return maxStruct
}

// tooLarge returns an error with the object's hash, which it computes without storing the
// object.
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

// beginning keeps the first bytes that are written to it.
type beginning struct {
	bytes [sizes]byte
	n     int
}

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	b.n += copy(b.bytes[b.n:], p)
	return len(p), nil
}

// sizes returns the sizes at the start of a delta: of its base, and of its result.
func (b *beginning) sizes() (from, to uint64, ok bool) {
	from, n := binary.Uvarint(b.bytes[:b.n])
	if n <= 0 {
		return 0, 0, false
	}
	to, m := binary.Uvarint(b.bytes[n:b.n])
	return from, to, m > 0
}

// keep writes a pack to a temporary file in dir and seeks to its beginning.
func keep(dir string, pack io.Reader) (*os.File, error) {
	f, err := os.CreateTemp(dir, "received-*")
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "git.keep", err)
	}
	if _, err = io.Copy(f, pack); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
