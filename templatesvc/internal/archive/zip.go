package archive

import (
	"archive/zip"
	"errors"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/diskerror"
)

// Flags of a zip's entries, and the systems that made them.
const (
	zipEncrypted  = 1 << 0
	zipStrong     = 1 << 6
	zipMaskedHead = 1 << 13
	madeOnUnix    = 3
	madeOnMac     = 19
)

// readZip reads a zip, whose directory is at its end. If the source is not a file, it makes
// a temporary copy.
func readZip(in *input, r io.Reader, o Options, g *gate) error {
	file, done, err := seekable(in, r, o.Spool)
	if err != nil {
		return err
	}
	defer done()
	fi, err := file.Stat()
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "archive.Read", err)
	}
	if err := checkDirectory(file, fi.Size(), o.Limits); err != nil {
		return err
	}
	z, err := zip.NewReader(file, fi.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // the names are checked in clean
		return damaged(Zip, "", err)
	}
	var packed int64
	g.in = func() int64 { return min(packed, fi.Size()) }
	for _, f := range z.File {
		if err := in.ctx.Err(); err != nil {
			return errs.Wrap("archive.Read", err)
		}
		packed += int64(min(f.CompressedSize64, uint64(fi.Size())))
		if err := zipEntry(f, g); err != nil {
			return damaged(Zip, f.Name, err)
		}
	}
	return g.finish()
}

// seekable returns the archive as a file: r itself if it is one, and otherwise a temporary
// copy, which done removes.
func seekable(in *input, r io.Reader, dir string) (*os.File, func(), error) {
	if f, ok := r.(*os.File); ok {
		if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() {
			return f, func() {}, nil
		}
	}
	f, err := os.CreateTemp(dir, "spool-*.zip")
	if err != nil {
		return nil, nil, diskerror.Error("archive.Read", err)
	}
	done := func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
	if _, err := io.Copy(f, in); err != nil {
		done()
		return nil, nil, diskerror.Error("archive.Read", err)
	}
	return f, done, nil
}

func zipEntry(f *zip.File, g *gate) error {
	switch {
	case f.Flags&(zipEncrypted|zipStrong|zipMaskedHead) != 0:
		return errs.New(errs.Malformed, "the entry %s is encrypted: pack it without a password", quoted(f.Name))
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return errs.New(errs.Malformed, "the entry %s is compressed by method %d: pack it with deflate", quoted(f.Name), f.Method)
	case f.NonUTF8 && !utf8.ValidString(f.Name):
		return errs.New(errs.Malformed, "the entry %s has a name in an old code page: pack it with names in UTF-8", quoted(f.Name))
	case f.UncompressedSize64 > uint64(g.limits.EntryBytes):
		return g.tooLarge(f.Name)
	}
	e, err := zipKind(f)
	if err != nil {
		return err
	}
	if e.Kind == content.FileDir {
		return g.pass(f.Name, e, nil)
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	if e.Kind == content.FileSymlink {
		target, err := io.ReadAll(io.LimitReader(r, maxPath+1))
		if err != nil {
			return err
		}
		e.Target = string(target)
		return g.pass(f.Name, e, nil)
	}
	return g.pass(f.Name, e, r)
}

// zipKind returns the kind and the mode of an entry. It uses the mode only if the zip was
// made on a system with Unix modes.
func zipKind(f *zip.File) (Entry, error) {
	mode := f.Mode()
	if maker := f.CreatorVersion >> 8; (maker != madeOnUnix && maker != madeOnMac) || f.ExternalAttrs>>16 == 0 {
		mode = mode&fs.ModeType | 0o644
		if mode.IsDir() {
			mode |= 0o111
		}
	}
	e := Entry{Mode: uint32(mode.Perm())}
	switch mode.Type() {
	case 0:
		e.Size = int64(f.UncompressedSize64)
	case fs.ModeDir:
		e.Kind = content.FileDir
	case fs.ModeSymlink:
		e.Kind, e.Mode = content.FileSymlink, 0
	default:
		return e, errs.New(errs.Malformed, "the entry %s is a device, a pipe or a socket: leave it out", quoted(f.Name))
	}
	return e, nil
}
