package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// readTar reads a possibly compressed tar as a stream.
func readTar(in *input, f Format, g *gate) error {
	stream, done, err := decompress(in, f)
	if err != nil {
		return damaged(f, "", packing(err))
	}
	defer done()
	unpacked := &input{ctx: in.ctx, r: stream, left: g.limits.packed()}
	if err := tarEntries(unpacked, f, g); err != nil {
		return damaged(f, "", packing(err))
	}
	// Read to the end of the stream, so that the decompressor verifies its checksums.
	if _, err := io.Copy(io.Discard, unpacked); err != nil {
		return damaged(f, "", packing(err))
	}
	return g.finish()
}

// decompress returns the decompressed stream. done releases its memory.
func decompress(in io.Reader, f Format) (r io.Reader, done func(), err error) {
	switch f {
	case TarGzip:
		z, err := gzip.NewReader(in)
		return z, func() {}, err
	case TarZstd:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(window))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case Zip, Tar:
	}
	return in, func() {}, nil
}

// packing returns TooLarge if a decompressor needs too much memory. It unwraps the
// Unavailable of the second input: that one's source is the decompressor, not the network.
func packing(err error) error {
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return errs.New(errs.TooLarge, "the archive needs a window of more than %d MiB to be unpacked: pack it with zstd --long=26 or less", window>>20)
	}
	var e *errs.Error
	if errors.As(err, &e) && e.Op == "archive.Read" && e.Kind == errs.Unavailable {
		return e.Err
	}
	return err
}

func tarEntries(r *input, f Format, g *gate) error {
	t := tar.NewReader(r)
	for {
		before := r.read
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			// A tar ends with a block of zeros, after less than one block of padding.
			if r.read-before < 512 {
				return io.ErrUnexpectedEOF
			}
			return nil
		case err != nil:
			return err
		case h.Typeflag == tar.TypeXGlobalHeader:
			continue // a comment, as git archive writes it
		}
		if err := tarEntry(h, t, g); err != nil {
			return damaged(f, h.Name, packing(err))
		}
	}
}

func tarEntry(h *tar.Header, r io.Reader, g *gate) error {
	e := Entry{Mode: uint32(h.Mode & 0o777)}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		e.Size = h.Size
	case tar.TypeDir:
		e.Kind = content.FileDir
	case tar.TypeSymlink:
		e.Kind, e.Mode, e.Target = content.FileSymlink, 0, h.Linkname
	case tar.TypeLink:
		if e.Same = h.Linkname; e.Same == "" {
			e.Same = "."
		}
	default:
		return errs.New(errs.Malformed, "the entry %s is %s: leave it out", quoted(h.Name), oddKind(h.Typeflag))
	}
	return g.pass(h.Name, e, r)
}

func oddKind(flag byte) string {
	switch flag {
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	case tar.TypeFifo:
		return "a pipe"
	}
	return fmt.Sprintf("of a kind templates do not have (%q)", flag)
}
