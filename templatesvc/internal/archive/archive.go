// Package archive reads foreign archives (zip, tar, tar.gz, tar.zst) entry by
// entry, and writes the same formats in one way only.
//
//	bytes ──▶ decompress ──▶ entries ──▶ name ──▶ tree ──▶ meter ──▶ the caller's function
//	              window      kinds     confine   clashes   bytes
//
// Invariants: the caller's function sees only paths inside the tree, each once,
// regular files, directories and links, with permission bits and no others; no
// more bytes than the limits allow are ever given out, whatever sizes the archive
// claims; no more memory is taken than the formats' windows and one record an entry.
// Whether links lead out is known only when all of them were seen: what the
// function stored counts when Read returned nil, and not before.
//
// It writes nothing to disk but the spool of a zip, which cannot be read from its
// beginning, and knows nothing of how entries are kept.
package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Format is how an archive is packed.
type Format string

// The formats.
const (
	Zip     Format = "zip"
	Tar     Format = "tar"
	TarGzip Format = "tar.gz"
	TarZstd Format = "tar.zst"
)

// FormatOf is the format a file's name tells, "" when it tells none.
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

// Limits bound what an archive may hold. Use DefaultLimits and change what differs.
type Limits struct {
	// TotalBytes and EntryBytes bound the content, of all entries and of each.
	TotalBytes, EntryBytes int64
	// Entries bounds how many there are, directories and links included.
	Entries int
	// Ratio is how many bytes one packed byte may become, once 64 MiB came out.
	Ratio int64
}

// DefaultLimits are those of an upload: 512 MiB in all, 128 MiB an entry, 50,000
// entries, 200 bytes out of one.
func DefaultLimits() Limits {
	return Limits{TotalBytes: 512 << 20, EntryBytes: 128 << 20, Entries: 50_000, Ratio: 200}
}

const (
	// ratioFrom is how much may come out before the ratio is looked at.
	ratioFrom = 64 << 20
	// window bounds what a decompressor remembers.
	window = 64 << 20
	// headerBytes is what an entry may cost beside its content.
	headerBytes = 2048
)

// packed is how large the archive itself, or its unpacked stream, may be.
func (l Limits) packed() int64 { return l.TotalBytes + int64(l.Entries)*headerBytes }

// Options say how to read. The zero Format is found out from the first bytes.
type Options struct {
	Format Format
	Limits Limits
	// Spool is the directory a zip is kept in while it is read. Empty: the system's.
	Spool string
}

// Entry is one member of an archive.
type Entry struct {
	// Path is slash-separated, relative, clean and inside the tree.
	Path string
	Kind fleet.FileKind
	// Mode holds permission bits only.
	Mode uint32
	// Size is what a regular file holds.
	Size int64
	// Target is where a link leads, relative to its own directory.
	Target string
	// Same is the path of an earlier regular file whose content this one has, of a hard
	// link; its reader is empty then.
	Same string
}

// Read calls each for every entry in the archive's order, with a reader of its
// content, which is valid during the call. The error of each ends it and is returned.
// Malformed when the archive is damaged or hostile, TooLarge when a limit is passed,
// Unavailable when r or the spool fails.
func Read(ctx context.Context, r io.Reader, o Options, each func(Entry, io.Reader) error) error {
	in := &input{ctx: ctx, r: r, left: o.Limits.packed()}
	err := read(in, r, o, each)
	var own stopped
	switch {
	case errors.As(err, &own):
		return own.err
	case in.err != nil:
		return in.err // what follows from a source that failed is not the archive's fault
	}
	return err
}

// stopped carries the error of the caller's function out, whatever it is.
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
			return errs.New(errs.Malformed, "this is no %s, it looks like a %s: pack it as one, or send it as what it is", o.Format, is)
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

// detect tells the format by the first bytes, "" when they are none's.
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

// damaged says that an archive cannot be read on.
func damaged(format Format, at string, err error) error {
	var refusal *errs.Error
	var own stopped
	if errors.As(err, &own) || errors.As(err, &refusal) {
		return err // told already
	}
	where := ""
	if at != "" {
		where = " at " + quoted(at)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &errs.Error{Kind: errs.Malformed, Message: fmt.Sprintf("the %s breaks off%s: send it whole", format, where), Err: err}
	}
	return &errs.Error{Kind: errs.Malformed, Message: fmt.Sprintf("the %s is damaged%s: pack it anew", format, where), Err: err}
}

// quoted is a name as a message shows it, however long or odd it is.
func quoted(name string) string {
	const most = 120
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%q", name)
}
