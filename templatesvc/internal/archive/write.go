package archive

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Writer writes an archive. The same entries in the same order give the same bytes, because
// they contain no time, user or host. Create it with NewWriter. The archive is complete
// when Close returns nil.
type Writer struct {
	tar    *tar.Writer
	zip    *zip.Writer
	closer []io.Closer // in closing order
}

// packedAt returns the time of every entry: the earliest that a zip can express.
func packedAt() time.Time { return time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC) }

// NewWriter starts an archive. It returns Invalid for an unknown format.
func NewWriter(w io.Writer, f Format) (*Writer, error) {
	switch f {
	case Zip:
		z := zip.NewWriter(w)
		return &Writer{zip: z, closer: []io.Closer{z}}, nil
	case Tar:
		t := tar.NewWriter(w)
		return &Writer{tar: t, closer: []io.Closer{t}}, nil
	case TarGzip:
		z := gzip.NewWriter(w)
		t := tar.NewWriter(z)
		return &Writer{tar: t, closer: []io.Closer{t, z}}, nil
	case TarZstd:
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil, errs.WrapAs(errs.Internal, "archive.NewWriter", err)
		}
		t := tar.NewWriter(z)
		return &Writer{tar: t, closer: []io.Closer{t, z}}, nil
	}
	return nil, errs.Field("format", "%q is not known: use zip, tar, tar.gz or tar.zst", string(f))
}

// Add writes one entry. For regular files, r must yield e.Size bytes; for others, it may be
// nil.
func (w *Writer) Add(e Entry, r io.Reader) error {
	if w.zip != nil {
		return errs.WrapAs(errs.Unavailable, "archive.Add", w.addZip(e, r))
	}
	return errs.WrapAs(errs.Unavailable, "archive.Add", w.addTar(e, r))
}

// Close completes the archive.
func (w *Writer) Close() error {
	var all error
	for _, c := range w.closer {
		all = errors.Join(all, c.Close())
	}
	return errs.WrapAs(errs.Unavailable, "archive.Close", all)
}

func (w *Writer) addTar(e Entry, r io.Reader) error {
	h := &tar.Header{Name: e.Path, Mode: int64(e.Mode), ModTime: packedAt()}
	switch e.Kind {
	case content.FileDir:
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
	case content.FileSymlink:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.Target, 0o777
	case content.FileRegular:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	if e.Kind != content.FileRegular {
		return nil
	}
	n, err := io.Copy(w.tar, r)
	if err == nil && n != e.Size {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (w *Writer) addZip(e Entry, r io.Reader) error {
	h := &zip.FileHeader{Name: e.Path, Method: zip.Deflate, Modified: packedAt()}
	mode := fs.FileMode(e.Mode)
	switch e.Kind {
	case content.FileDir:
		h.Name, h.Method, mode = e.Path+"/", zip.Store, mode|fs.ModeDir
	case content.FileSymlink:
		h.Method, mode, r = zip.Store, fs.ModeSymlink|0o777, strings.NewReader(e.Target)
	case content.FileRegular:
	}
	h.SetMode(mode)
	f, err := w.zip.CreateHeader(h)
	if err != nil || e.Kind == content.FileDir {
		return err
	}
	_, err = io.Copy(f, r)
	return err
}
