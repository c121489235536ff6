package files

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
)

// place returns a directory with files, next to one that must not be read.
func place(t *testing.T, files map[string]string, hidden map[string]string) Viewer {
	t.Helper()
	above := t.TempDir()
	dir := filepath.Join(above, "instance")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files["../outside"] = "not for you"
	for name, content := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Viewer{Dir: dir, Mask: secrets.NewMask(hidden)}
}

func (p Viewer) link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, filepath.Join(p.Dir, name)); err != nil {
		t.Fatal(err)
	}
}

func TestListIsSortedByName(t *testing.T) {
	p := place(t, map[string]string{"server.properties": "a=b", "logs/1.log": "one", "logs/latest": "", ".orrery-lock": "x", "s3cret-value.txt": ""}, map[string]string{"A": "s3cret-value"})
	p.link(t, "logs/1.log", "now.log")
	p.link(t, "../outside", "out")
	p.link(t, "nowhere", "broken")
	if err := unix.Mkfifo(filepath.Join(p.Dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := p.List("")
	want := client.Directory{Entries: []client.FileEntry{
		{Name: "broken", Other: true},
		{Name: "logs", Dir: true},
		{Name: "now.log", Size: 3},
		{Name: "out", Other: true},
		{Name: "pipe", Other: true},
		{Name: "***.txt"},
		{Name: "server.properties", Size: 3},
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(client.FileEntry{}, "ModifiedAt", "ETag")); err != nil || diff != "" {
		t.Errorf("%s, %v", diff, err)
	}
	for _, name := range []string{"logs", "logs/", "./logs"} {
		if got, err := p.List(name); err != nil || len(got.Entries) != 2 || got.Entries[0].Name != "1.log" || got.Entries[0].ModifiedAt.IsZero() {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := p.List("server.properties"); !errs.Is(err, errs.Conflict) || errs.FieldOf(err) != "path" {
		t.Errorf("a file: %v", err)
	}
}

func TestListOfALargeDirectoryIsLimited(t *testing.T) {
	files := map[string]string{}
	for n := range maxEntries + 5 {
		files[strconv.Itoa(n)] = ""
	}
	got, err := place(t, files, nil).List(".")
	if err != nil || len(got.Entries) != maxEntries || !got.More {
		t.Errorf("%d, %v, %v", len(got.Entries), got.More, err)
	}
}

func TestOnlyRegularFilesInsideAreShown(t *testing.T) {
	p := place(t, map[string]string{"deep/file": "x", ".orrery-lock": "x", "deep/.orrery/token": "x"}, nil)
	p.link(t, "../outside", "out")
	p.link(t, "/etc/hostname", "absolute")
	p.link(t, "..", "up")
	p.link(t, "circle", "circle")
	p.link(t, "deep/file", "in")
	if err := unix.Mkfifo(filepath.Join(p.Dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(p.Dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, want := range map[string]errs.Kind{
		"../outside": errs.Invalid, "deep/../../outside": errs.Invalid, "/etc/hostname": errs.Invalid, "out": errs.Invalid, "absolute": errs.Invalid,
		"up/outside": errs.Invalid, "circle": errs.Invalid, "a\x00b": errs.Invalid, "..": errs.Invalid, strings.Repeat("a/", 4000): errs.Invalid,
		"none": errs.NotFound, "deep/file/x": errs.NotFound, ".orrery-lock": errs.NotFound, "deep/.orrery/token": errs.NotFound,
		"deep": errs.Conflict, "": errs.Conflict, "pipe": errs.Conflict, "socket": errs.Conflict,
	} {
		if c, err := p.Read(Query{Path: name, Bytes: 100}); errs.KindOf(err) != want || errs.FieldOf(err) != "path" || c.Text != "" {
			t.Errorf("%.40q: %+v, %v, want %v", name, c, err, want)
		}
	}
	for _, name := range []string{"../", "up", "out", "/"} {
		if _, err := p.List(name); !errs.Is(err, errs.Invalid) {
			t.Errorf("listing %q: %v", name, err)
		}
	}
	if c, err := p.Read(Query{Path: "in", Bytes: 100}); err != nil || c.Text != "x" {
		t.Errorf("a link to what is within: %+v, %v", c, err)
	}
	if _, err := (Viewer{Dir: filepath.Join(p.Dir, "gone")}).Read(Query{Path: "x"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("no directory: %v", err)
	}
}

func TestAgentFilesAreHiddenBehindLinks(t *testing.T) {
	p := place(t, map[string]string{".orrery-lock": "epochs", "deep/.orrery-new-1": "half", "deep/.orrery/token": "x", "mine": "yes"}, nil)
	p.link(t, ".orrery-lock", "lock")
	p.link(t, "lock", "chain")
	p.link(t, "deep/.orrery-new-1", "new")
	p.link(t, "deep/.orrery", "folder")
	p.link(t, "mine", "link")
	if err := os.Link(filepath.Join(p.Dir, ".orrery-lock"), filepath.Join(p.Dir, "hard")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lock", "chain", "new", "hard", "folder/token", "folder"} {
		if c, err := p.Read(Query{Path: name, Bytes: 100}); !errs.Is(err, errs.NotFound) || errs.FieldOf(err) != "path" || c.Text != "" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if l, err := p.List("folder"); !errs.Is(err, errs.NotFound) {
		t.Errorf("%+v, %v", l, err)
	}
	got, err := p.List("")
	want := client.Directory{Entries: []client.FileEntry{
		{Name: "chain", Other: true},
		{Name: "deep", Dir: true},
		{Name: "folder", Other: true},
		{Name: "hard", Other: true},
		{Name: "link", Size: 3},
		{Name: "lock", Other: true},
		{Name: "mine", Size: 3},
		{Name: "new", Other: true},
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(client.FileEntry{}, "ModifiedAt", "ETag")); err != nil || diff != "" {
		t.Errorf("%s, %v", diff, err)
	}
	at := filepath.Join(filepath.Dir(p.Dir), ".orrery", "instance") // names above the directory do not count
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(p.Dir, at); err != nil {
		t.Fatal(err)
	}
	if c, err := (Viewer{Dir: at}).Read(Query{Path: "link", Bytes: 100}); err != nil || c.Text != "yes" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestReadReturnsTheRequestedPart(t *testing.T) {
	p := place(t, map[string]string{"log": "first\nzwölf ☃\nlast\n", "data": "a\x00b", "latin": "f\xfcnf", "empty": ""}, nil)
	for _, c := range []struct {
		q    Query
		want client.FileContent
	}{
		{Query{"log", 100, false}, client.FileContent{Text: "first\nzwölf ☃\nlast\n", Size: 22}},
		{Query{"log", 5, false}, client.FileContent{Text: "first", Size: 22, Cut: true}},
		{Query{"log", 5, true}, client.FileContent{Text: "last\n", Size: 22, Cut: true}},
		{Query{"log", 9, false}, client.FileContent{Text: "first\nzw", Size: 22, Cut: true}},
		{Query{"log", 15, false}, client.FileContent{Text: "first\nzwölf ", Size: 22, Cut: true}},
		{Query{"log", 7, true}, client.FileContent{Text: "\nlast\n", Size: 22, Cut: true}},
		{Query{"log", 0, true}, client.FileContent{Size: 22, Cut: true}},
		{Query{"data", 100, false}, client.FileContent{Size: 3, Binary: true}},
		{Query{"latin", 100, false}, client.FileContent{Text: "f\ufffdnf", Size: 4}},
		{Query{"empty", 100, true}, client.FileContent{}},
	} {
		got, err := p.Read(c.q)
		if got.ETag == "" {
			t.Errorf("%+v: no ETag", c.q)
		}
		if got.ETag = ""; err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c.q, got, err)
		}
	}
}

func TestAnETagChangesWithTheFile(t *testing.T) {
	p := place(t, map[string]string{"a": "1", "b": "1"}, nil)
	etag := func(name string) string {
		c, err := p.Read(Query{Path: name, Bytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		return c.ETag
	}
	first := etag("a")
	if first != etag("a") || first == etag("b") {
		t.Errorf("%s, then %s; of another file %s", first, etag("a"), etag("b"))
	}
	if err := os.Chmod(filepath.Join(p.Dir, "a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(p.Dir, "b"), filepath.Join(p.Dir, "a")); err != nil {
		t.Fatal(err)
	}
	if etag("a") == first {
		t.Error("another file has the ETag")
	}
	d, err := p.List("")
	if err != nil || d.Entries[0].ETag != etag("a") {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestSecretsCutByThePartAreMasked(t *testing.T) {
	p := place(t, map[string]string{"db": "password=mysql_s3cret\nregion=north\n"}, map[string]string{"A": "mysql_s3cret"})
	for n := range 36 {
		for _, tail := range []bool{false, true} {
			got, err := p.Read(Query{"db", n, tail})
			if err != nil || strings.Contains(got.Text, "sql") || strings.Contains(got.Text, "cre") || strings.Contains(got.Text, "_s3") {
				t.Errorf("%d, tail %v: %q, %v", n, tail, got.Text, err)
			}
		}
	}
	if got, err := p.Read(Query{Path: "db", Bytes: 100}); err != nil || got.Text != "password=***\nregion=north\n" {
		t.Errorf("%q, %v", got.Text, err)
	}
}

func TestReadIsLimited(t *testing.T) {
	p := place(t, map[string]string{}, nil)
	f, err := os.Create(filepath.Join(p.Dir, "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := strings.Repeat("x", 1<<20)
	for range 3 {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	got, err := p.Read(Query{Path: "large", Bytes: 1 << 30})
	if err != nil || len(got.Text) != MaxBytes || got.Size != 3<<20 || !got.Cut {
		t.Errorf("%d of %d, %v, %v", len(got.Text), got.Size, got.Cut, err)
	}
}
