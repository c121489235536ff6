package filetree

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/klauspost/compress/zstd"
	"github.com/orreryhq/orrery/cli/internal/exit"
)

const (
	// maxUnpacked bounds what an archive may hold.
	maxUnpacked = 16 << 30
	// maxWindow bounds the memory of a zstd decoder.
	maxWindow = 64 << 20
	// headLength is how much of a file is read to know its format; tar has its name at 257.
	headLength = 262
)

// ErrNotArchive says that a file is none of the formats.
var ErrNotArchive = errors.New("it is not a zip, tar, tar.gz or tar.zst archive")

// Unpack writes the content of an archive below root.
func Unpack(name string, root *os.Root) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	buffered := bufio.NewReader(f)
	head, err := buffered.Peek(headLength)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		err = unpackZip(name, root)
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		err = unpackGzip(buffered, root)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		err = unpackZstd(buffered, root)
	case len(head) == headLength && string(head[257:262]) == "ustar":
		err = UnpackTar(buffered, root)
	default:
		err = ErrNotArchive
	}
	if err != nil {
		hint := "pack the content of the directory, not the directory: tar -C DIR -czf template.tar.gz ."
		return exit.Hint(fmt.Errorf("%s cannot be the content of a template: %w", name, err), hint)
	}
	return nil
}

func unpackGzip(r io.Reader, root *os.Root) error {
	plain, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	defer plain.Close()
	return UnpackTar(plain, root)
}

func unpackZstd(r io.Reader, root *os.Root) error {
	plain, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer plain.Close()
	return UnpackTar(plain, root)
}

// UnpackTar writes the entries of a tar below root. A file that exists is replaced in one step.
func UnpackTar(r io.Reader, root *os.Root) error {
	archive, left := tar.NewReader(r), int64(maxUnpacked)
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && entries > 0:
			return nil
		case errors.Is(err, io.EOF), errors.Is(err, tar.ErrHeader):
			return errors.Join(ErrNotArchive, err)
		case err != nil:
			return err
		}
		if left -= header.Size; left < 0 {
			return fmt.Errorf("it has more than %d GiB", maxUnpacked>>30)
		}
		if err := unpackTarEntry(root, header, archive); err != nil {
			return fmt.Errorf("the entry %q: %w", header.Name, err)
		}
	}
}

func unpackTarEntry(root *os.Root, header *tar.Header, content io.Reader) error {
	if header.Typeflag != tar.TypeLink {
		return unpackEntry(root, header.Name, header.FileInfo().Mode(), header.Linkname, content)
	}
	same, err := root.Open(path.Clean(header.Linkname)) // an earlier entry
	if err != nil {
		return err
	}
	defer same.Close()
	return unpackEntry(root, header.Name, header.FileInfo().Mode(), "", same)
}

func unpackZip(name string, root *os.Root) error {
	archive, err := zip.OpenReader(name)
	if err != nil {
		return err
	}
	defer archive.Close()
	left := uint64(maxUnpacked)
	for _, f := range archive.File {
		if f.UncompressedSize64 > left {
			return fmt.Errorf("it has more than %d GiB", maxUnpacked>>30)
		}
		left -= f.UncompressedSize64
		if err := unpackZipEntry(root, f); err != nil {
			return fmt.Errorf("the entry %q: %w", f.Name, err)
		}
	}
	return nil
}

func unpackZipEntry(root *os.Root, f *zip.File) error {
	content, err := f.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	target := ""
	if f.Mode().Type() == fs.ModeSymlink {
		text, err := io.ReadAll(io.LimitReader(content, maxLink))
		if err != nil {
			return err
		}
		target = string(text)
	}
	mode := f.Mode()
	if mode.IsRegular() && mode.Perm() == 0 {
		mode = 0o644 // packed on a system without modes
	}
	return unpackEntry(root, f.Name, mode, target, content)
}

// maxLink bounds the target of a link.
const maxLink = 4096

// unpackEntry writes an entry of an archive. root keeps it from writing elsewhere.
func unpackEntry(root *os.Root, name string, mode fs.FileMode, target string, content io.Reader) error {
	p := path.Clean(name)
	if p == "." {
		return nil
	}
	if !fs.ValidPath(p) {
		return errors.New("it is not a path inside the template")
	}
	if mode.IsDir() {
		return root.MkdirAll(p, 0o755)
	}
	if err := root.MkdirAll(path.Dir(p), 0o755); err != nil {
		return err
	}
	switch mode.Type() {
	case 0:
		return replaceFile(root, p, mode.Perm(), content)
	case fs.ModeSymlink:
		if leavesTree(p, target) {
			return fmt.Errorf("it is a link to %s, which is outside of the template", target)
		}
		if err := root.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(target, p)
	}
	return errors.New("it is neither a file nor a directory nor a link")
}

// temporarySuffix ends the name of a file that is not complete yet.
const temporarySuffix = ".orrery-new"

// replaceFile writes a file beside p and renames it, so that p never has half of the content.
func replaceFile(root *os.Root, p string, mode fs.FileMode, content io.Reader) error {
	temporary := p + temporarySuffix
	f, err := root.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Chmod(temporary, mode)
	}
	if err == nil {
		err = root.Rename(temporary, p)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return nil
}

// Pack writes entries of a directory as a tar.
func Pack(w io.Writer, root *os.Root, t Tree, paths []string) error {
	archive := tar.NewWriter(w)
	for _, name := range paths {
		if err := packEntry(archive, root, name, t[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return archive.Close()
}

func packEntry(archive *tar.Writer, root *os.Root, name string, e Entry) error {
	header := &tar.Header{Name: name, Mode: int64(e.Mode), Size: e.Size, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	switch e.Kind {
	case Directory:
		header.Typeflag, header.Mode = tar.TypeDir, 0o755
	case Link:
		header.Typeflag, header.Mode, header.Linkname = tar.TypeSymlink, 0o777, e.Target
	}
	if err := archive.WriteHeader(header); err != nil || e.Kind != File {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(archive, f)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != e.Size {
		return errors.New("the file changed while it was sent")
	}
	return err
}
