package archive_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

func write(t testing.TB, f archive.Format) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := archive.NewWriter(&b, f)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		entry   archive.Entry
		content string
	}{
		{archive.Entry{Path: "conf/ä " + strings.Repeat("long", 40), Mode: 0o640, Size: 5}, "a: 1\n"},
		{archive.Entry{Path: "empty", Kind: content.FileDir, Mode: 0o755}, ""},
		{archive.Entry{Path: "link", Kind: content.FileSymlink, Target: "conf"}, ""},
		{archive.Entry{Path: "run", Mode: 0o755, Size: 3}, "run"},
	} {
		if err := w.Add(e.entry, strings.NewReader(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWhatIsWrittenIsReadBackAndAlwaysTheSameBytes(t *testing.T) {
	want := fmt.Sprintf(`[conf/ä %s "" 640  5 "a: 1\n" empty "dir" 755  0 "" link "link" 0 conf 0 "" run "" 755  3 "run"]`, strings.Repeat("long", 40))
	for _, f := range []archive.Format{archive.Zip, archive.Tar, archive.TarGzip, archive.TarZstd} {
		t.Run(string(f), func(t *testing.T) {
			b := write(t, f)
			if told, err := unpack(t, b, options()); err != nil || fmt.Sprint(told) != want {
				t.Errorf("%v %v\nwant %s", told, err, want)
			}
			if !bytes.Equal(b, write(t, f)) {
				t.Error("packed twice, the bytes differ")
			}
		})
	}
}

func TestAWriterRefusesWhatItCannotWrite(t *testing.T) {
	if _, err := archive.NewWriter(io.Discard, "rar"); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	w, err := archive.NewWriter(io.Discard, archive.Tar)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(archive.Entry{Path: "a", Size: 3}, strings.NewReader("1")); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a file that is shorter than its size: %v", err)
	}
}
