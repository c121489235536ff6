package apigateway

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// member is an entry of a hostile archive, a file unless mode says otherwise.
type member struct {
	name, content string
	mode          fs.FileMode
}

func zipped(t *testing.T, entries ...member) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flate.BestSpeed) })
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode | 0o644)
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = f.Write([]byte(e.content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func tarred(t *testing.T, h tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h.Mode, h.Format = 0o644, tar.FormatGNU
	if err := errors.Join(w.WriteHeader(&h), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestAHostileArchiveIsRefusedByNameInBothDialects(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	s.do("POST", "/api/v1/templates", `{"name":"lobby"}`).want(201)
	s.do("PUT", "/api/v1/templates/lobby/files/content?path=a", `{"content":"one"}`).want(200)
	before := s.do("GET", "/api/v1/templates/lobby", nil).want(200).field("hash")
	outside := filepath.Join(t.TempDir(), "escaped")
	up := strings.Repeat("../", 40) + strings.TrimPrefix(outside, "/")
	for rule, c := range map[string]struct {
		name, archive, want string
		status              int
	}{
		"a path that leads out":         {"x.zip", zipped(t, member{name: up}), "leads out of the template by ..", 400},
		"an absolute path":              {"x.zip", zipped(t, member{name: outside}), "is an absolute path", 400},
		"a link out":                    {"x.zip", zipped(t, member{name: "evil", content: up, mode: fs.ModeSymlink}), "evil", 400},
		"a file below a link":           {"x.zip", zipped(t, member{name: "l", content: ".", mode: fs.ModeSymlink}, member{name: "l/evil"}), "l/evil", 400},
		"a device":                      {"x.zip", zipped(t, member{name: "evil", mode: fs.ModeDevice}), "evil", 400},
		"names that differ in case":     {"x.zip", zipped(t, member{name: "Read"}, member{name: "READ"}), "differ only in case", 400},
		"a bomb":                        {"x.zip", zipped(t, member{name: "evil", content: strings.Repeat("\x00", 65<<20)}), "as bombs do", 413},
		"no bytes at all":               {"x.zip", "", "is empty (0 bytes)", 400},
		"a page about an error":         {"x.zip", "<html>502</html>", "breaks off", 400},
		"a path that leads out, by tar": {"x.tar", tarred(t, tar.Header{Name: up}), "leads out of the template by ..", 400},
		"a hard link out":               {"x.tar", tarred(t, tar.Header{Name: "evil", Typeflag: tar.TypeLink, Linkname: up}), "evil", 400},
		"a block device":                {"x.tar", tarred(t, tar.Header{Name: "evil", Typeflag: tar.TypeBlock, Devmajor: 8}), "a device", 400},
		"a name that is not UTF-8":      {"x.tar", tarred(t, tar.Header{Name: "evil\xff"}), "not UTF-8", 400},
	} {
		t.Run(rule, func(t *testing.T) {
			on := *s.site
			on.t = t
			body, kind := form(t, nil, c.name, c.archive)
			on.do("POST", "/api/v1/templates/lobby/files/upload?extract=true", body, kind...).want(c.status).naming(c.want)
			body, kind = form(t, map[string]string{"name": "never"}, c.name, c.archive)
			on.do("POST", "/api/v1/templates/import", body, kind...).want(c.status).naming(c.want)
			if c.name == "x.zip" {
				on.do("POST", "/api/templates/default/lobby/import", c.archive).want(c.status).naming(c.want)
			}
			on.do("GET", "/api/v1/templates/lobby", nil).want(200).is("hash", before)
			on.do("GET", "/api/v1/templates/never", nil).want(404)
			if _, err := os.Lstat(outside); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("there is something at %s: %v", outside, err)
			}
		})
	}
}
