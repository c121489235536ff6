package filetree_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates/filetree"
)

// directory returns a directory with files, whose names end with / if they are directories.
func directory(t *testing.T, files map[string]string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return open(t, dir)
}

func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := filetree.OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func local(t *testing.T, root *os.Root, exclude ...string) filetree.Tree {
	t.Helper()
	found, err := filetree.Local(root, exclude)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func remoteFile(content string, mode fs.FileMode) filetree.Entry {
	sum := sha256.Sum256([]byte(content))
	return filetree.Entry{Kind: filetree.File, Size: int64(len(content)), Mode: mode, SHA256: hex.EncodeToString(sum[:])}
}

func TestCompare(t *testing.T) {
	dir := filetree.Entry{Kind: filetree.Directory}
	for _, c := range []struct {
		name   string
		local  map[string]string
		remote filetree.Tree
		want   filetree.Plan
	}{
		{"equal content needs nothing", map[string]string{"a": "x", "d/b": "y"}, filetree.Tree{"a": remoteFile("x", 0o644), "d": dir, "d/b": remoteFile("y", 0o644)}, filetree.Plan{}},
		{"a file of the same size but another content is written", map[string]string{"a": "x"}, filetree.Tree{"a": remoteFile("y", 0o644)}, filetree.Plan{
			Changes: []filetree.Change{{Path: "a", Change: filetree.Changed, OldSize: 1, NewSize: 1}}, Write: []string{"a"}, Bytes: 1, WriteFiles: 1,
		}},
		{"another mode is written", map[string]string{"a": "x"}, filetree.Tree{"a": remoteFile("x", 0o755)}, filetree.Plan{
			Changes: []filetree.Change{{Path: "a", Change: filetree.Changed, OldSize: 1, NewSize: 1}}, Write: []string{"a"}, Bytes: 1, WriteFiles: 1,
		}},
		{"a directory is removed as a whole", map[string]string{"d-e": "x"}, filetree.Tree{"d-e": remoteFile("x", 0o644), "d": dir, "d/b": remoteFile("y", 0o644), "d/c": dir}, filetree.Plan{
			Changes: []filetree.Change{{Path: "d/b", Change: filetree.Removed, OldSize: 1}}, Remove: []string{"d"}, RemoveFiles: 1,
		}},
		{"a file that became a directory is removed first", map[string]string{"a/b": "x"}, filetree.Tree{"a": remoteFile("x", 0o644)}, filetree.Plan{
			Changes: []filetree.Change{{Path: "a", Change: filetree.Removed, OldSize: 1}, {Path: "a/b", Change: filetree.Added, NewSize: 1}},
			Remove:  []string{"a"}, Write: []string{"a", "a/b"}, Bytes: 1, WriteFiles: 1, RemoveFiles: 1,
		}},
		{"an empty directory is a change", map[string]string{"d/": ""}, nil, filetree.Plan{
			Changes: []filetree.Change{{Path: "d", Change: filetree.Added}}, Write: []string{"d"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := directory(t, c.local)
			got, err := filetree.Compare(root, local(t, root), c.remote)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestLocalLeavesOutWhatIsExcluded(t *testing.T) {
	root := directory(t, map[string]string{".git/config": "", "a.log": "", "logs/b.log": "", "keep": "", "cache/x": ""})
	got := local(t, root, "*.log", "cache")
	want := filetree.Tree{"keep": {Kind: filetree.File, Mode: 0o644}, "logs": {Kind: filetree.Directory}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLinksMustStayInside(t *testing.T) {
	for target, ok := range map[string]bool{"a": true, "../a": true, "../../a": false, "/etc/passwd": false, "../..": false} {
		root := directory(t, map[string]string{"a": "x", "d/": ""})
		if err := root.Symlink(target, "d/l"); err != nil {
			t.Fatal(err)
		}
		_, err := filetree.Local(root, nil)
		if ok != (err == nil) {
			t.Errorf("a link d/l to %s: %v", target, err)
		}
		if err != nil && !strings.Contains(exit.HintOf(err), "--exclude d/l") {
			t.Errorf("the hint is %q", exit.HintOf(err))
		}
	}
}

// tarOf returns a tar with entries.
func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := []byte("content of " + h.Name)
		if h.Typeflag != tar.TypeReg {
			content = nil
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// formats returns the same content in each format.
func formats(t *testing.T) map[string][]byte {
	t.Helper()
	plain := tarOf(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./run.sh", Typeflag: tar.TypeReg, Mode: 0o755},
		tar.Header{Name: "./plugins/a.yml", Typeflag: tar.TypeReg, Mode: 0o644},
	)
	var gz, zst, zipped bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{g, z} {
		if _, err := w.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	archive := zip.NewWriter(&zipped)
	for name, mode := range map[string]fs.FileMode{"run.sh": 0o755, "plugins/a.yml": 0o644} {
		h := &zip.FileHeader{Name: name}
		h.SetMode(mode)
		w, err := archive.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("content of ./" + name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"tar": plain, "tar.gz": gz.Bytes(), "tar.zst": zst.Bytes(), "zip": zipped.Bytes()}
}

func unpack(t *testing.T, content []byte) (*os.Root, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	root := open(t, t.TempDir())
	return root, filetree.Unpack(name, root)
}

func TestUnpackKnowsEachFormatByItsContent(t *testing.T) {
	for format, content := range formats(t) {
		t.Run(format, func(t *testing.T) {
			root, err := unpack(t, content)
			if err != nil {
				t.Fatal(err)
			}
			want := filetree.Tree{
				"run.sh":        {Kind: filetree.File, Mode: 0o755, Size: 19},
				"plugins":       {Kind: filetree.Directory},
				"plugins/a.yml": {Kind: filetree.File, Mode: 0o644, Size: 26},
			}
			if diff := cmp.Diff(want, local(t, root)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestUnpackRefuses(t *testing.T) {
	good := formats(t)
	for name, content := range map[string][]byte{
		"a text":                    []byte("motd=hello\n"),
		"nothing":                   nil,
		"a tar.gz that is cut":      good["tar.gz"][:len(good["tar.gz"])/2],
		"a gzip of something else":  gzipped(t, "hello"),
		"a path that leads out":     tarOf(t, tar.Header{Name: "../out", Typeflag: tar.TypeReg}),
		"an absolute path":          tarOf(t, tar.Header{Name: "/out", Typeflag: tar.TypeReg}),
		"a link that leads out":     tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../out"}),
		"a device":                  tarOf(t, tar.Header{Name: "null", Typeflag: tar.TypeChar}),
		"a hard link to elsewhere":  tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}),
		"a file below another file": tarOf(t, tar.Header{Name: "a", Typeflag: tar.TypeReg}, tar.Header{Name: "a/b", Typeflag: tar.TypeReg}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := unpack(t, content)
			if err == nil || !strings.Contains(err.Error(), "cannot be the content of a template") || exit.HintOf(err) == "" {
				t.Errorf("got %v, hint %q", err, exit.HintOf(err))
			}
		})
	}
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPackAndUnpackKeepEverything(t *testing.T) {
	from := directory(t, map[string]string{"a.txt": "hello", "d/run.sh": "#!/bin/sh\n", "empty/": "", "ä ö/ü": ""})
	if err := from.Chmod("d/run.sh", 0o750); err != nil {
		t.Fatal(err)
	}
	if err := from.Symlink("../a.txt", "d/l"); err != nil {
		t.Fatal(err)
	}
	content := local(t, from)
	var paths []string
	for name := range content {
		paths = append(paths, name)
	}
	var packed bytes.Buffer
	if err := filetree.Pack(&packed, from, content, paths); err != nil {
		t.Fatal(err)
	}
	to := open(t, t.TempDir())
	if err := filetree.UnpackTar(&packed, to); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(content, local(t, to)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestUnpackReplacesFilesThatExist(t *testing.T) {
	root := directory(t, map[string]string{"run.sh": "old", "other": "stays"})
	if err := filetree.UnpackTar(bytes.NewReader(formats(t)["tar"]), root); err != nil {
		t.Fatal(err)
	}
	if got, err := root.ReadFile("run.sh"); err != nil || string(got) != "content of ./run.sh" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := root.ReadFile("other"); err != nil || string(got) != "stays" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestPackNoticesThatAFileChanges(t *testing.T) {
	root := directory(t, map[string]string{"a": "long"})
	content := local(t, root)
	for _, text := range []string{"short"[:2], "longer than before"} {
		if err := root.WriteFile("a", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := filetree.Pack(&bytes.Buffer{}, root, content, []string{"a"})
		if err == nil || !strings.Contains(err.Error(), "changed while it was sent") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}
