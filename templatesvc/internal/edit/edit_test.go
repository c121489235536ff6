package edit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
	"github.com/orreryhq/orrery/templatesvc/internal/edit"
)

// hostile are paths that must be refused.
var hostile = []string{
	"..", "../x", "a/../../x", "a/..", "./a", "a/.", "a//b", "a/", "/etc/passwd", "//x", `..\x`, `a\b`, `C:\x`,
	"a\x00b", "a\nb", "\xff\xfe", ".orrery-lock", ".orrery-lock/x", strings.Repeat("a", 256), strings.Repeat("a/", 64) + "a",
	strings.Repeat("abcdefgh/", 120) + "x",
}

func TestAPathThatLeadsOutOrCannotStandIsRefused(t *testing.T) {
	for _, p := range hostile {
		if got, err := edit.Clean(p); !errs.Is(err, errs.Malformed) || errs.FieldOf(err) != "path" {
			t.Errorf("%q: %q, %v", p, got, err)
		}
		tree := of("a", "b/c")
		for what, err := range map[string]error{
			"put":    tree.Put(content.ManifestEntry{Path: p}, false),
			"mkdir":  tree.Mkdir(p),
			"delete": tree.Delete(p),
			"from":   tree.Rename(p, "new"),
			"to":     tree.Rename("a", p),
			"read":   second(tree.File(p)),
			"list":   second(tree.List(p)),
		} {
			if !errs.Is(err, errs.Malformed) {
				t.Errorf("%s %q: %v", what, p, err)
			}
		}
		if got := paths(tree); !slices.Equal(got, []string{"a", "b/c"}) {
			t.Errorf("after %q: %v", p, got)
		}
	}
	for _, p := range []string{"", ".", "/"} {
		if got, err := edit.Clean(p); err != nil || got != "" {
			t.Errorf("%q: %q, %v", p, got, err)
		}
	}
}

func FuzzPaths(f *testing.F) {
	for _, p := range append(slices.Clone(hostile), "a", "a/b.c", "…/ü", ".hidden", "%2e%2e/x") {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		clean, err := edit.Clean(p)
		if err != nil {
			return
		}
		if clean != "" && !filepath.IsLocal(clean) {
			t.Errorf("%q became %q, which leads out", p, clean)
		}
		if again, err := edit.Clean(clean); err != nil || again != clean {
			t.Errorf("%q became %q, then %q, %v", p, clean, again, err)
		}
	})
}

func TestALinkIsFollowedInsideTheTreeOnly(t *testing.T) {
	tree := edit.Of(content.Manifest{Entries: []content.ManifestEntry{
		{Path: "conf/real", SHA256: "r"},
		{Path: "conf/round", Kind: content.FileSymlink, Target: "round"},
		{Path: "direct", Kind: content.FileSymlink, Target: "conf/real"},
		{Path: "dir", Kind: content.FileSymlink, Target: "conf"},
		{Path: "out", Kind: content.FileSymlink, Target: "../../etc"},
		{Path: "p/up", Kind: content.FileSymlink, Target: "../.."},
	}})
	for _, p := range []string{"conf/real", "direct", "dir/real"} {
		if e, err := tree.File(p); err != nil || e.SHA256 != "r" {
			t.Errorf("%s: %+v, %v", p, e, err)
		}
	}
	for _, p := range []string{"conf/round", "out/passwd", "p/up/x", "dir/none", "direct/below"} {
		if _, err := tree.File(p); !errs.Is(err, errs.NotFound) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if err := tree.Put(content.ManifestEntry{Path: "dir/new"}, false); !errs.Is(err, errs.Conflict) {
		t.Errorf("written through a link: %v", err)
	}
	if err := tree.Put(content.ManifestEntry{Path: "direct"}, false); !errs.Is(err, errs.Conflict) {
		t.Errorf("written over a link: %v", err)
	}
}

func TestEditsOfATree(t *testing.T) {
	put := func(p string) func(*edit.Tree) error {
		return func(t *edit.Tree) error { return t.Put(content.ManifestEntry{Path: p, SHA256: "new"}, false) }
	}
	rename := func(from, to string) func(*edit.Tree) error {
		return func(t *edit.Tree) error { return t.Rename(from, to) }
	}
	remove := func(p string) func(*edit.Tree) error {
		return func(t *edit.Tree) error { return t.Delete(p) }
	}
	for _, c := range []struct {
		name string
		do   func(*edit.Tree) error
		kind errs.Kind // Internal means no error
		want string
	}{
		{"a file is written over", put("a"), errs.Internal, "a b/c b/d/e"},
		{"a file makes its directories", put("x/y/z"), errs.Internal, "a b/c b/d/e x/y/z"},
		{"a file cannot take a directory's place", put("b"), errs.Conflict, "a b/c b/d/e"},
		{"a file cannot lie below a file", put("a/x"), errs.Conflict, "a b/c b/d/e"},
		{"a new file must be new", func(t *edit.Tree) error { return t.Put(content.ManifestEntry{Path: "a"}, true) }, errs.AlreadyExists, "a b/c b/d/e"},
		{"a directory stands though nothing is in it", func(t *edit.Tree) error { return t.Mkdir("n/m") }, errs.Internal, "a b/c b/d/e n/m/"},
		{"a directory that exists is not made", func(t *edit.Tree) error { return t.Mkdir("b/d") }, errs.AlreadyExists, "a b/c b/d/e"},
		{"what is below a directory goes with it", remove("b"), errs.Internal, "a"},
		{"an emptied directory stays", remove("b/d/e"), errs.Internal, "a b/c b/d/"},
		{"what is not there cannot be removed", remove("x"), errs.NotFound, "a b/c b/d/e"},
		{"a directory moves with all in it", rename("b", "x/y"), errs.Internal, "a x/y/c x/y/d/e"},
		{"nothing is moved over something", rename("b/c", "a"), errs.AlreadyExists, "a b/c b/d/e"},
		{"nothing is moved into itself", rename("b", "b/d/x"), errs.Conflict, "a b/c b/d/e"},
		{"nothing is moved below a file", rename("b", "a/b"), errs.Conflict, "a b/c b/d/e"},
		{"what is not there cannot be moved", rename("x", "y"), errs.NotFound, "a b/c b/d/e"},
		{"a move may not make a path too long", rename("b", strings.Repeat("x/", 62)+"x"), errs.Invalid, "a b/c b/d/e"},
		{"an archive is laid over", func(t *edit.Tree) error {
			return t.Overlay("b", []content.ManifestEntry{{Path: "c", SHA256: "o"}, {Path: "n/o"}})
		}, errs.Internal, "a b/c b/d/e b/n/o"},
		{"an archive that does not fit changes nothing", func(t *edit.Tree) error {
			return t.Overlay("", []content.ManifestEntry{{Path: "first"}, {Path: "b"}})
		}, errs.Conflict, "a b/c b/d/e"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := of("a", "b/c", "b/d/e")
			err := c.do(tree)
			if c.kind == errs.Internal && err != nil || c.kind != errs.Internal && !errs.Is(err, c.kind) {
				t.Errorf("got %v", err)
			}
			if got := strings.Join(paths(tree), " "); got != c.want {
				t.Errorf("the tree is %s, want %s", got, c.want)
			}
		})
	}
}

func TestAWrittenFileKeepsItsModeUnlessOneIsGiven(t *testing.T) {
	tree := edit.Of(content.Manifest{Entries: []content.ManifestEntry{{Path: "run.sh", Mode: 0o755}}})
	for _, c := range []struct{ give, want uint32 }{{0, 0o755}, {0o600, 0o600}} {
		if err := tree.Put(content.ManifestEntry{Path: "run.sh", Mode: c.give}, false); err != nil {
			t.Fatal(err)
		}
		if e, err := tree.File("run.sh"); err != nil || e.Mode != c.want {
			t.Errorf("mode %o, %v, want %o", e.Mode, err, c.want)
		}
	}
}

// TestEditsDoWhatAFileSystemDoes compares random edits with the same edits of a directory.
func TestEditsDoWhatAFileSystemDoes(t *testing.T) {
	names := []string{"a", "b", "a/a", "a/b", "b/a", "a/a/a", "b/a/b"}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		tree := edit.Of(content.Manifest{})
		for step := range 60 {
			p, q := names[r.IntN(len(names))], names[r.IntN(len(names))]
			var ours, theirs error
			what := ""
			switch r.IntN(4) {
			case 0:
				what, ours, theirs = "put "+p, tree.Put(content.ManifestEntry{Path: p}, false), write(root, p)
			case 1:
				what, ours, theirs = "mkdir "+p, tree.Mkdir(p), mkdir(root, p)
			case 2:
				what, ours, theirs = "delete "+p, tree.Delete(p), remove(root, p)
			case 3:
				what, ours, theirs = "rename "+p+" "+q, tree.Rename(p, q), rename(root, p, q)
			}
			if (ours == nil) != (theirs == nil) {
				t.Fatalf("seed %d, step %d, %s: %v, the file system says %v", seed, step, what, ours, theirs)
			}
			if got, want := fmt.Sprint(paths(tree)), fmt.Sprint(onDisk(t, root)); got != want {
				t.Fatalf("seed %d, step %d, %s: %s, the file system has %s", seed, step, what, got, want)
			}
		}
	}
}

func write(root *os.Root, p string) error {
	if err := root.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	return root.WriteFile(p, nil, 0o644)
}

func mkdir(root *os.Root, p string) error {
	if _, err := root.Lstat(p); err == nil {
		return fs.ErrExist
	}
	return root.MkdirAll(p, 0o755)
}

func remove(root *os.Root, p string) error {
	if _, err := root.Lstat(p); err != nil {
		return err
	}
	return root.RemoveAll(p)
}

func rename(root *os.Root, from, to string) error {
	if _, err := root.Lstat(from); err != nil {
		return err
	}
	if _, err := root.Lstat(to); err == nil {
		return fs.ErrExist
	}
	if strings.HasPrefix(to, from+"/") {
		return errors.New("into itself")
	}
	if err := root.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return root.Rename(from, to)
}

func onDisk(t *testing.T, root *os.Root) []string {
	t.Helper()
	var out []string
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		if !d.IsDir() {
			out = append(out, p)
			return nil
		}
		inside, err := fs.ReadDir(root.FS(), p)
		if len(inside) == 0 {
			out = append(out, p+"/")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func TestASearchTellsPlaces(t *testing.T) {
	long := strings.Repeat("ü", 200) + "NEEDLE" + strings.Repeat("x", 500)
	content := "a needle\nnone\r\n  Über Needle needle\r\n" + long + "\nneedle"
	got := edit.Search("f", content, "nEEdle", 4)
	want := []client.Match{
		{Path: "f", Line: 1, Column: 3, Preview: "a needle"},
		{Path: "f", Line: 3, Column: 8, Preview: "  Über Needle needle"},
		{Path: "f", Line: 4, Column: 201, Preview: got[2].Preview},
		{Path: "f", Line: 5, Column: 1, Preview: "needle"},
	}
	if !slices.Equal(got, want) || !strings.Contains(got[2].Preview, "NEEDLE") || len(got[2].Preview) > 240 {
		t.Errorf("got %+v", got)
	}
	if few := edit.Search("f", content, "needle", 1); len(few) != 1 {
		t.Errorf("asked for one, got %d", len(few))
	}
}

func TestPlaceholdersAreFoundAsTheyAreReplaced(t *testing.T) {
	content := "port=%PORT%\n100% of %a.b-c% and %PORT%\n{{name}} %1no% %% %tail"
	got := fmt.Sprint(edit.Placeholders(content))
	if want := "[{PORT 1} {a.b-c 2} {PORT 2}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func of(files ...string) *edit.Tree {
	var m content.Manifest
	for _, f := range files {
		m.Entries = append(m.Entries, content.ManifestEntry{Path: f, Mode: 0o644, SHA256: "old"})
	}
	return edit.Of(m)
}

// paths returns the paths of a tree. Those of empty directories end with a slash.
func paths(t *edit.Tree) []string {
	var out []string
	for _, e := range t.Manifest().Entries {
		if e.Kind == content.FileDir {
			e.Path += "/"
		}
		out = append(out, e.Path)
	}
	slices.Sort(out)
	return out
}

func second[T any](_ T, err error) error { return err }
