package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

func TestEveryFormatGivesTheSameEntries(t *testing.T) {
	members := []member{
		{name: "conf/", flag: tar.TypeDir, mode: 0o755},
		{name: "conf/a.yml", content: "a: 1\n"},
		{name: "run.sh", content: "#!/bin/sh\n", mode: 0o755},
		{name: "link", flag: tar.TypeSymlink, link: "conf/a.yml"},
	}
	want := `[conf "dir" 755  0 "" conf/a.yml "" 644  5 "a: 1\n" run.sh "" 755  10 "#!/bin/sh\n" link "link" 0 conf/a.yml 0 ""]`
	plain := tarOf(t, members...)
	for format, b := range map[archive.Format][]byte{
		archive.Zip: zipOf(t, members...), archive.Tar: plain, archive.TarGzip: gz(t, plain), archive.TarZstd: zst(t, plain),
	} {
		t.Run(string(format), func(t *testing.T) {
			for _, o := range []archive.Options{options(), {Format: format, Limits: archive.DefaultLimits()}} {
				if told, err := unpack(t, b, o); err != nil || fmt.Sprint(told) != want {
					t.Errorf("%v %v\nwant %s", told, err, want)
				}
			}
		})
	}
}

func TestAZipIsReadFromItsFileWithoutACopy(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.zip")
	if err := os.WriteFile(name, zipOf(t, member{name: "a", content: "1"}), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := options()
	o.Spool = filepath.Join(t.TempDir(), "does", "not", "exist")
	n := 0
	if err := archive.Read(t.Context(), f, o, func(archive.Entry, io.Reader) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
}

func TestOnlyPermissionsAreKeptOfAMode(t *testing.T) {
	told, err := unpack(t, tarOf(t, member{name: "s", mode: 0o6755}, member{name: "d", flag: tar.TypeDir, mode: 0o1777}), options())
	if err != nil || fmt.Sprint(told) != `[s "" 755  0 "" d "dir" 777  0 ""]` {
		t.Errorf("%v %v", told, err)
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	if _, err := w.CreateRaw(&zip.FileHeader{Name: "dos"}); err != nil { // as systems without file modes write it
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if told, err := unpack(t, b.Bytes(), options()); err != nil || fmt.Sprint(told) != `[dos "" 644  0 ""]` {
		t.Errorf("%v %v", told, err)
	}
}

func TestHarmlessOdditiesAreRead(t *testing.T) {
	b := tarOf(
		t, member{name: "./", flag: tar.TypeDir}, member{name: "./a", content: "1"}, member{name: "d/", flag: tar.TypeDir},
		member{name: "d", flag: tar.TypeDir}, member{name: "d/h", flag: tar.TypeLink, link: "./a"},
		member{name: "d/up", flag: tar.TypeSymlink, link: "../a"}, member{name: "d/none", flag: tar.TypeSymlink, link: "later/../x"},
	)
	told, err := unpack(t, b, options())
	want := `[a "" 644  1 "1" d "dir" 644  0 "" d "dir" 644  0 "" d/h "" 644 a 1 "" d/up "link" 0 ../a 0 "" d/none "link" 0 later/../x 0 ""]`
	if err != nil || fmt.Sprint(told) != want {
		t.Errorf("%v %v\nwant %s", told, err, want)
	}
}

func TestTheCallersErrorEndsTheReading(t *testing.T) {
	own := errors.New("no room")
	for _, b := range [][]byte{tarOf(t, member{name: "a", content: "1"}, member{name: "b"}), zipOf(t, member{name: "a", content: "1"}, member{name: "b"})} {
		n := 0
		o := options()
		o.Spool = t.TempDir()
		err := archive.Read(t.Context(), bytes.NewReader(b), o, func(archive.Entry, io.Reader) error { n++; return own })
		if err != own || n != 1 {
			t.Errorf("%v after %d entries", err, n)
		}
	}
}

func TestAnArchiveBecomesAManifest(t *testing.T) {
	b := tarOf(
		t, member{name: "z", content: "1"}, member{name: "full/", flag: tar.TypeDir, mode: 0o755}, member{name: "full/a", content: "22"},
		member{name: "empty/", flag: tar.TypeDir, mode: 0o755}, member{name: "h", flag: tar.TypeLink, link: "full/a", mode: 0o600},
	)
	m, err := archive.Collect(t.Context(), bytes.NewReader(b), options(), func(r io.Reader, _ int64) (content.Content, error) {
		body, err := io.ReadAll(r)
		return content.Content{SHA256: "sum of " + string(body), Size: int64(len(body))}, err
	})
	want := []content.ManifestEntry{
		{Path: "empty", Kind: content.FileDir, Mode: 0o755},
		{Path: "full/a", Mode: 0o644, Size: 2, SHA256: "sum of 22"},
		{Path: "h", Mode: 0o600, Size: 2, SHA256: "sum of 22"},
		{Path: "z", Mode: 0o644, Size: 1, SHA256: "sum of 1"},
	}
	if err != nil || fmt.Sprintf("%+v", m.Entries) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v %v", m.Entries, err)
	}
}

func TestAnArchiveOfAnotherKindIsNamed(t *testing.T) {
	plain := tarOf(t, member{name: "f", content: "one"})
	for _, c := range []struct {
		is, as archive.Format
		b      []byte
	}{
		{archive.TarGzip, archive.Zip, gz(t, plain)},
		{archive.Tar, archive.Zip, plain},
		{archive.Zip, archive.Tar, zipOf(t, member{name: "f", content: "one"})},
	} {
		refused(t, c.b, archive.Options{Format: c.as, Limits: archive.DefaultLimits()}, errs.Malformed, "this is no "+string(c.as)+", it looks like a "+string(c.is))
	}
}

func TestFormatsAreToldByName(t *testing.T) {
	for name, want := range map[string]archive.Format{
		"a.zip": archive.Zip, "A.ZIP": archive.Zip, "a.tar.gz": archive.TarGzip, "a.tgz": archive.TarGzip, "a.tar.zst": archive.TarZstd,
		"a.tzst": archive.TarZstd, "a.tar": archive.Tar, "a.jar": "", "zip": "",
	} {
		if got := archive.FormatOf(name); got != want {
			t.Errorf("FormatOf(%q) = %q", name, got)
		}
	}
}
