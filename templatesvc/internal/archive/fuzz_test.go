package archive_test

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

func FuzzZip(f *testing.F) {
	for _, c := range hostile {
		f.Add(zipOf(f, c.members...))
	}
	f.Add(write(f, archive.Zip))
	fuzz(f, archive.Zip)
}

func FuzzTar(f *testing.F) {
	for _, c := range hostile {
		f.Add(tarOf(f, c.members...))
	}
	f.Add(tarOf(f, member{name: "a"}, member{name: "h", flag: tar.TypeLink, link: "a"}))
	fuzz(f, archive.Tar)
}

func FuzzTarGz(f *testing.F) {
	f.Add(write(f, archive.TarGzip))
	fuzz(f, archive.TarGzip)
}

func FuzzTarZst(f *testing.F) {
	f.Add(write(f, archive.TarZstd))
	fuzz(f, archive.TarZstd)
}

// fuzz reads arbitrary bytes. It checks that entries stay inside the tree and the limits,
// and that refusals have the right Kind.
func fuzz(f *testing.F, format archive.Format) {
	o := archive.Options{Format: format, Limits: archive.Limits{TotalBytes: 1 << 20, EntryBytes: 1 << 18, Entries: 200, Ratio: 200}, Spool: f.TempDir()}
	f.Fuzz(func(t *testing.T, b []byte) {
		var total int64
		seen := map[string]bool{}
		err := archive.Read(t.Context(), bytes.NewReader(b), o, func(e archive.Entry, r io.Reader) error {
			n, err := io.Copy(io.Discard, r)
			total += n
			if !strings.HasPrefix(path.Join("/tree", e.Path), "/tree/") || path.Clean(e.Path) != e.Path || strings.ContainsAny(e.Path, "\x00\\") {
				t.Errorf("%q leaves the tree", e.Path)
			}
			if e.Kind == "" && seen[e.Path] {
				t.Errorf("%q came twice", e.Path)
			}
			seen[e.Path] = true
			return err
		})
		if total > o.Limits.TotalBytes || len(seen) > o.Limits.Entries {
			t.Errorf("%d bytes and %d entries came out", total, len(seen))
		}
		if err != nil && !errs.Is(err, errs.Malformed) && !errs.Is(err, errs.TooLarge) {
			t.Errorf("%v (%s)", err, errs.KindOf(err))
		}
	})
}
