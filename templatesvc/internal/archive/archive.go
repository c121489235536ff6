// Package archive reads archives from users (zip, tar, tar.gz, tar.zst) entry by entry, and
// writes the same formats reproducibly.
//
//	bytes ──▶ decompress ──▶ entries ──▶ name ──▶ tree ──▶ limits ──▶ the caller's function
//	              window      kinds     confine   clashes   bytes
//
// Invariants: The caller's function sees only regular files, directories and links, with
// permission bits only, each path once and inside the tree. It never receives more bytes
// than the limits allow, even if the archive claims other sizes. Memory is bounded by the
// decompression window and one record per entry. Links can only be checked after the last
// entry, so the caller must discard everything if Read returns an error.
//
// The package writes nothing to disk except a temporary copy of a zip, which has to be read
// from its end.
package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Format is an archive format.
type Format string

// The formats.
const (
	Zip     Format = "zip"
	Tar     Format = "tar"
	TarGzip Format = "tar.gz"
	TarZstd Format = "tar.zst"
)

// FormatOf returns the format for the ending of a file name, or "" if it is unknown.
func FormatOf(name string) Format {
	name = strings.ToLower(name)
	for _, known := range []struct {
		ending string
		format Format
	}{
		{".zip", Zip},
		{".tar.gz", TarGzip},
		{".tgz", TarGzip},
		{".tar.zst", TarZstd},
		{".tzst", TarZstd},
		{".tar", Tar},
	} {
		if strings.HasSuffix(name, known.ending) {
			return known.format
		}
	}
	return ""
}

// Limits restrict what an archive may hold. Start with DefaultLimits.
type Limits struct {
	// TotalBytes is the maximum size of all content, EntryBytes that of one entry.
	TotalBytes, EntryBytes int64
	// Entries is the maximum number of entries, including directories and links.
	Entries int
	// Ratio is the maximum ratio of unpacked to packed bytes. It applies after 64 MiB of
	// output.
	Ratio int64
}

// DefaultLimits returns the limits of an upload: 512 MiB in all, 128 MiB per entry, 50,000
// entries, ratio 200.
func DefaultLimits() Limits {
	return Limits{TotalBytes: 512 << 20, EntryBytes: 128 << 20, Entries: 50_000, Ratio: 200}
}

const (
	// ratioFrom is the output in bytes from which the ratio is checked.
	ratioFrom = 64 << 20
	// window is the maximum window of a decompressor in bytes.
	window = 64 << 20
	// headerBytes is the assumed maximum size of an entry's header.
	headerBytes = 2048
)

// packed returns the maximum size of the archive, and of a decompressed tar.
func (l Limits) packed() int64 { return l.TotalBytes + int64(l.Entries)*headerBytes }

// Options say how to read an archive. If Format is "", it is detected from the first bytes.
type Options struct {
	Format Format
	Limits Limits
	// Spool is the directory for the temporary copy of a zip; "" means the system's.
	Spool string
}

// Entry is one entry of an archive.
type Entry struct {
	// Path is slash-separated, relative, clean and inside the tree.
	Path string
	Kind content.FileKind
	// Mode has only permission bits.
	Mode uint32
	// Size is the size of a regular file.
	Size int64
	// Target is where a link leads, relative to the link's directory.
	Target string
	// Same is the path of an earlier regular file with the same content, for a hard link.
	// The entry's reader is then empty.
	Same string
}

// Read calls each for every entry, in the archive's order, with a reader that is valid
// during the call. If each returns an error, Read stops and returns it. Read returns
// Malformed when the archive is damaged or malicious, TooLarge beyond a limit, and
// Unavailable when r or the spool fails.
func Read(ctx context.Context, r io.Reader, o Options, each func(Entry, io.Reader) error) error {
	in := &input{ctx: ctx, r: r, left: o.Limits.packed()}
	err := read(in, r, o, each)
	var own stopped
	switch {
	case errors.As(err, &own):
		return own.err
	case in.err != nil:
		return in.err // a failed source also looks like a damaged archive
	}
	return err
}

// stopped wraps an error of the caller's function, to tell it from one of the archive.
type stopped struct{ err error }

// Error implements error.
func (s stopped) Error() string { return s.err.Error() }

func read(in *input, r io.Reader, o Options, each func(Entry, io.Reader) error) error {
	head, err := in.peek(len(tarMagic) + tarMagicAt)
	switch {
	case err != nil:
		return err
	case len(head) == 0:
		return errs.New(errs.Malformed, "the archive is empty (0 bytes): send it whole")
	case o.Format == "":
		o.Format = detect(head)
	default:
		if is := detect(head); is != "" && is != o.Format {
			return errs.New(errs.Malformed, "this is no %s, it looks like a %s: pack it as one, or send it with its real format", o.Format, is)
		}
	}
	g := &gate{limits: o.Limits, in: func() int64 { return in.read }, each: each, tree: newTree(o.Limits.Entries)}
	switch o.Format {
	case Zip:
		return readZip(in, r, o, g)
	case Tar, TarGzip, TarZstd:
		return readTar(in, o.Format, g)
	}
	return errs.New(errs.Malformed, "this is no archive that can be read: send a zip, tar, tar.gz or tar.zst")
}

const (
	tarMagic   = "ustar"
	tarMagicAt = 257
)

// detect returns the format for the first bytes, or "" if they match none.
func detect(head []byte) Format {
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")), bytes.HasPrefix(head, []byte("PK\x07\x08")):
		return Zip
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return TarGzip
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		return TarZstd
	case len(head) >= tarMagicAt+len(tarMagic) && string(head[tarMagicAt:tarMagicAt+len(tarMagic)]) == tarMagic:
		return Tar
	}
	return ""
}

// damaged returns the error for an archive that cannot be decoded. at is the current entry.
func damaged(format Format, at string, err error) error {
	var refusal *errs.Error
	var own stopped
	if errors.As(err, &own) || errors.As(err, &refusal) {
		return err // has a message already
	}
	where := ""
	if at != "" {
		where = " at " + quoted(at)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &errs.Error{Kind: errs.Malformed, Message: fmt.Sprintf("the %s breaks off%s: send it whole", format, where), Err: err}
	}
	return &errs.Error{Kind: errs.Malformed, Message: fmt.Sprintf("the %s is damaged%s: pack it again", format, where), Err: err}
}

// quoted returns a name for a message, quoted and at most 120 bytes long.
func quoted(name string) string {
	const most = 120
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%q", name)
}
