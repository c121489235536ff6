package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

// member is an entry of a test archive, for both tar and zip.
type member struct {
	name, content, link string
	flag                byte // only for tar
	mode                int64
	size                int64 // only for tar; 0 means the size of content
	devmajor            int64
}

func tarOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{
			Name: m.name, Typeflag: cmp.Or(m.flag, byte(tar.TypeReg)), Linkname: m.link, Mode: cmp.Or(m.mode, 0o644),
			Size: cmp.Or(m.size, int64(len(m.content))), Devmajor: m.devmajor, Format: tar.FormatGNU,
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, m.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(os.FileMode(cmp.Or(m.mode, 0o644)).Perm())
		content := m.content
		switch m.flag {
		case tar.TypeSymlink:
			h.SetMode(os.ModeSymlink | 0o777)
			content = m.link
		case tar.TypeChar:
			h.SetMode(os.ModeDevice | os.ModeCharDevice)
		case tar.TypeFifo:
			h.SetMode(os.ModeNamedPipe)
		case tar.TypeDir:
			h.SetMode(os.ModeDir | 0o755)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zst(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// unpack reads an archive. It returns a description of each entry, including its content.
func unpack(t testing.TB, b []byte, o archive.Options) (told []string, err error) {
	t.Helper()
	o.Spool = t.TempDir()
	err = archive.Read(t.Context(), bytes.NewReader(b), o, func(e archive.Entry, r io.Reader) error {
		content, err := io.ReadAll(r)
		told = append(told, fmt.Sprintf("%s %q %o %s%s %d %q", e.Path, e.Kind, e.Mode, e.Target, e.Same, e.Size, content))
		return err
	})
	if left, _ := os.ReadDir(o.Spool); len(left) > 0 {
		t.Errorf("the spool still holds %v", left)
	}
	return told, err
}

func options() archive.Options { return archive.Options{Limits: archive.DefaultLimits()} }

// small returns limits that a test exceeds with little data.
func small() archive.Options {
	return archive.Options{Limits: archive.Limits{TotalBytes: 4096, EntryBytes: 1024, Entries: 10, Ratio: 200}}
}

func refused(t *testing.T, b []byte, o archive.Options, kind errs.Kind, want string) {
	t.Helper()
	_, err := unpack(t, b, o)
	told(t, err, kind, want)
}

func told(t *testing.T, err error, kind errs.Kind, want string) {
	t.Helper()
	if !errs.Is(err, kind) || !strings.Contains(errs.MessageOf(err), want) {
		t.Errorf("%v (%s), want %s: …%s…", err, errs.KindOf(err), kind, want)
	}
}
