package workspace_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/disktest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFullDiskLeavesNothingBehind(t *testing.T) { disktest.Small(t, "256k", buildOnFullDisk) }

func buildOnFullDisk(t *testing.T, dir string) {
	b := newBench(t)
	cache, err := blobcache.Open(filepath.Join(b.data, "blobs"), b.shelf, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.builder = workspace.New(dir, cache)
	large := fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": strings.Repeat("x", 1<<20)})}}
	_, err = b.build(large)
	mustFail(t, err, fleet.ReasonDiskFull)
	if left, err := os.ReadDir(filepath.Join(dir, "running")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	small := fleet.Plan{Layers: []fleet.PlanLayer{b.layer("b", map[string]string{"x": "small"})}}
	if _, err := b.build(small); err != nil {
		t.Errorf("another instance: %v", err)
	}
}

// shelf is a source of templates in memory.
type shelf struct {
	manifests map[string]content.Manifest
	contents  map[string][]byte
	// failing maps artifacts to errors; may be nil.
	failing map[string]error
	// asked is called for each request of content; may be nil.
	asked func()
}

func (s *shelf) Manifest(_ context.Context, digest string) (io.ReadCloser, error) {
	m, ok := s.manifests[digest]
	if !ok {
		return nil, errs.New(errs.NotFound, "no manifest %s", digest)
	}
	b, err := json.Marshal(m)
	return io.NopCloser(bytes.NewReader(b)), err
}

// Row reports that it sends only single blobs.
func (s *shelf) Row(context.Context, []string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "one at a time")
}

func (s *shelf) Suspect(context.Context, string) error { return nil }

func (s *shelf) Blob(_ context.Context, hash string) (io.ReadCloser, error) {
	if s.asked != nil {
		s.asked()
	}
	if b, ok := s.contents[hash]; ok {
		return io.NopCloser(bytes.NewReader(b)), nil
	}
	return nil, errs.New(errs.NotFound, "no blob %s", hash)
}

// Artifact serves content like any other, unless it is in failing.
func (s *shelf) Artifact(ctx context.Context, hash string) (io.ReadCloser, error) {
	if err, ok := s.failing[hash]; ok {
		return nil, err
	}
	return s.Blob(ctx, hash)
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func file(path, body string) (content.ManifestEntry, string) {
	return content.ManifestEntry{Path: path, Mode: 0o644, Size: int64(len(body)), SHA256: sum([]byte(body))}, body
}

// layer publishes a template of plain files and other entries.
func (s *shelf) layer(name string, files map[string]string, more ...content.ManifestEntry) fleet.PlanLayer {
	m := content.Manifest{Entries: more}
	for path, content := range files {
		e, text := file(path, content)
		s.contents[e.SHA256] = []byte(text)
		m.Entries = append(m.Entries, e)
	}
	slices.SortFunc(m.Entries, func(a, b content.ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers only
	}
	s.manifests[sum(b)] = m
	return fleet.PlanLayer{TemplateRef: content.TemplateRef{Group: "t", Name: name}, Digest: sum(b)}
}

type bench struct {
	*shelf
	t       *testing.T
	data    string
	builder *workspace.Builder
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{shelf: &shelf{manifests: map[string]content.Manifest{}, contents: map[string][]byte{}}, t: t, data: t.TempDir()}
	cache, err := blobcache.Open(filepath.Join(b.data, "blobs"), b.shelf, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.builder = workspace.New(b.data, cache)
	return b
}

func placement() fleet.Placement {
	return fleet.Placement{Instance: "aaaaaa", Name: "g-1", Group: "g", Node: "n", Generation: 1, Port: 25565}
}

func (b *bench) build(plan fleet.Plan) ([]string, error) {
	values := map[string]string{"PORT": "25565", "INSTANCE_GROUPS": "a;b"}
	return b.builder.Build(b.t.Context(), workspace.Request{Placement: placement(), Plan: plan, Values: values})
}

// tree reads a directory: contents by path, links as "-> target", empty directories as "dir".
func (b *bench) tree(dir string) map[string]string {
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			got[rel] = "-> " + target
			return err
		case d.IsDir():
			if inside, err := os.ReadDir(path); err == nil && len(inside) == 0 {
				got[rel] = "dir"
			}
			return nil
		}
		content, err := os.ReadFile(path)
		got[rel] = string(content)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func TestLayers(t *testing.T) {
	dir := content.ManifestEntry{Path: "logs", Kind: content.FileDir, Mode: 0o755}
	link := content.ManifestEntry{Path: "current", Kind: content.FileSymlink, Target: "worlds/a"}
	cases := []struct {
		name   string
		layers func(b *bench) []fleet.PlanLayer
		want   map[string]string
	}{
		{"no layer gives an empty directory", func(*bench) []fleet.PlanLayer { return nil }, map[string]string{".": "dir"}},
		{"files of all layers are written", func(b *bench) []fleet.PlanLayer {
			return []fleet.PlanLayer{b.layer("a", map[string]string{"a": "1"}), b.layer("b", map[string]string{"deep/b": "2"})}
		}, map[string]string{"a": "1", "deep/b": "2"}},
		{"the later layer wins", func(b *bench) []fleet.PlanLayer {
			return []fleet.PlanLayer{b.layer("a", map[string]string{"x": "old", "y": "kept"}), b.layer("b", map[string]string{"x": "new"})}
		}, map[string]string{"x": "new", "y": "kept"}},
		{"a later file replaces a directory", func(b *bench) []fleet.PlanLayer {
			return []fleet.PlanLayer{b.layer("a", map[string]string{"x/y": "old", "x/z/w": "old"}), b.layer("b", map[string]string{"x": "file"})}
		}, map[string]string{"x": "file"}},
		{"a later directory replaces a file", func(b *bench) []fleet.PlanLayer {
			return []fleet.PlanLayer{b.layer("a", map[string]string{"x": "file"}), b.layer("b", map[string]string{"x/y": "new"})}
		}, map[string]string{"x/y": "new"}},
		{"directories and links are kept", func(b *bench) []fleet.PlanLayer {
			return []fleet.PlanLayer{b.layer("a", map[string]string{"worlds/a": "w"}, dir, link)}
		}, map[string]string{"worlds/a": "w", "logs": "dir", "current": "-> worlds/a"}},
		{"nothing is written through a link of an earlier layer", func(b *bench) []fleet.PlanLayer {
			l := content.ManifestEntry{Path: "x", Kind: content.FileSymlink, Target: "y"}
			return []fleet.PlanLayer{b.layer("a", map[string]string{"y/z": "1"}, l), b.layer("b", map[string]string{"x/z": "2"})}
		}, map[string]string{"y/z": "1", "x/z": "2"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			if _, err := b.build(fleet.Plan{Layers: c.layers(b)}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, b.tree(b.builder.Dir(placement(), fleet.Plan{}))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlaceholdersAreReplacedInListedTextOnly(t *testing.T) {
	b := newBench(t)
	binary := "%PORT%\x00\xff"
	notes, err := b.build(fleet.Plan{
		Layers: []fleet.PlanLayer{b.layer("a", map[string]string{
			"server.properties": "port=%PORT%\ngroups=%INSTANCE_GROUPS%\nrest=100%\n", "deep/x/y.yml": "%PORT%/%NOPE%", "z.yml": "%NOPE%",
			"unlisted": "%PORT%", "listed.bin": binary, "latin": "%PORT% \xe4",
		})},
		FileModifications: []string{"server.properties", "**/*.yml", "listed.bin", "latin", "missing.txt", "none/*.cfg"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"server.properties": "port=25565\ngroups=a;b\nrest=100%\n", "deep/x/y.yml": "25565/%NOPE%", "z.yml": "%NOPE%",
		"unlisted": "%PORT%", "listed.bin": binary, "latin": "%PORT% \xe4",
	}
	if diff := cmp.Diff(want, b.tree(b.builder.Dir(placement(), fleet.Plan{}))); diff != "" {
		t.Error(diff)
	}
	wantNotes := []string{
		"no file matches missing.txt of fileModifications", "no file matches none/*.cfg of fileModifications",
		"latin was not changed: not text", "listed.bin was not changed: not text", "unknown placeholder %NOPE% in deep/x/y.yml",
	}
	if diff := cmp.Diff(wantNotes, notes); diff != "" {
		t.Error(diff)
	}
}

func TestUnmatchedDefaultPatternsGiveNoNote(t *testing.T) {
	b := newBench(t)
	notes, err := b.build(fleet.Plan{
		Layers: []fleet.PlanLayer{b.layer("main", map[string]string{
			"server.properties": "port=%PORT%", "deep/a.yml": "%PORT%", "b.yaml": "%PORT%", "c.toml": "%PORT%", "d.json": "%PORT%",
			"e.cfg": "%PORT%", "f.conf": "%PORT%", "run.sh": "%PORT%",
		})},
		FileModifications: configfile.DefaultFileModifications(),
	})
	if err != nil || len(notes) > 0 {
		t.Fatalf("notes %q, %v", notes, err)
	}
	want := map[string]string{
		"server.properties": "port=25565", "deep/a.yml": "25565", "b.yaml": "25565", "c.toml": "25565", "d.json": "25565",
		"e.cfg": "25565", "f.conf": "25565", "run.sh": "%PORT%",
	}
	if diff := cmp.Diff(want, b.tree(b.builder.Dir(placement(), fleet.Plan{}))); diff != "" {
		t.Error(diff)
	}
}

func TestModesAreKept(t *testing.T) {
	b := newBench(t)
	e, content := file("run.sh", "#!/bin/sh\n")
	e.Mode = 0o755
	b.contents[e.SHA256] = []byte(content)
	if _, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"plain": "x"}, e)}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"run.sh": 0o755, "plain": 0o644} {
		fi, err := os.Stat(filepath.Join(b.builder.Dir(placement(), fleet.Plan{}), name))
		if err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
}

func TestInstanceCannotChangeACachedBlob(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "content"})}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.builder.Dir(placement(), fleet.Plan{}), "x"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if got := b.tree(b.builder.Dir(placement(), fleet.Plan{}))["x"]; got != "content" {
		t.Errorf("the second directory has %q", got)
	}
}

func TestStaticDirectoryIsKept(t *testing.T) {
	cases := []struct {
		name string
		plan fleet.Plan
		want map[string]string
	}{
		{"existing files stay", fleet.Plan{}, map[string]string{
			"config": "edited", "world/level": "played", "new": "2", "own": "of the server", "listed": "25565",
		}},
		{"with override layers win", fleet.Plan{Override: true}, map[string]string{
			"config": "template 2", "world/level": "template 2", "new": "2", "own": "of the server", "listed": "template 25565",
		}},
		{"protected paths win over Override", fleet.Plan{Override: true, ProtectedPaths: []string{"world", "conf*"}}, map[string]string{
			"config": "edited", "world/level": "played", "new": "2", "own": "of the server", "listed": "template 25565",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			first := c.plan
			first.Static = true
			first.FileModifications = []string{"listed", "own"}
			first.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{"config": "template", "world/level": "template"})}
			if _, err := b.build(first); err != nil {
				t.Fatal(err)
			}
			dir := b.builder.Dir(placement(), fleet.Plan{Static: true})
			for name, content := range map[string]string{"config": "edited", "world/level": "played", "own": "of the server", "listed": "%PORT%"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			second := first
			second.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{
				"config": "template 2", "world/level": "template 2", "new": "2", "listed": "template %PORT%",
			})}
			if _, err := b.build(second); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, b.tree(dir)); diff != "" {
				t.Error(diff)
			}
			if err := b.builder.Remove(placement(), fleet.Plan{Static: true}); err != nil || len(b.tree(dir)) == 0 {
				t.Errorf("Remove removed a static directory: %v", err)
			}
		})
	}
}

func TestStaticDirectoryCreatedDuringBuildIsKept(t *testing.T) {
	for _, absent := range []bool{true, false} {
		t.Run(map[bool]string{true: "absent when claimed", false: "unclaimed"}[absent], func(t *testing.T) {
			b := newBench(t)
			dir := b.builder.Dir(placement(), fleet.Plan{Static: true})
			theirs := func() {
				if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "level"), []byte("played"), 0o600)); err != nil {
					t.Error(err)
				}
			}
			plan := fleet.Plan{Static: true, Override: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"level": "new"})}}
			b.asked = theirs
			if absent {
				theirs()
			}
			_, err := b.builder.Build(t.Context(), workspace.Request{Placement: placement(), Plan: plan, Absent: absent})
			mustFail(t, err, fleet.ReasonDirectoryTaken)
			if diff := cmp.Diff(map[string]string{"level": "played"}, b.tree(dir)); diff != "" {
				t.Error(diff)
			}
			if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestUnreadableDirectoryIsNotTreatedAsMissing(t *testing.T) {
	b := newBench(t)
	group := filepath.Dir(b.builder.Dir(placement(), fleet.Plan{Static: true}))
	if err := errors.Join(os.MkdirAll(filepath.Dir(group), 0o755), os.Symlink(filepath.Base(group), group)); err != nil {
		t.Fatal(err)
	}
	_, err := b.build(fleet.Plan{Static: true})
	mustFail(t, err, fleet.ReasonPrepareFailed)
	if err == nil || !strings.Contains(err.Error(), "cannot be examined") {
		t.Errorf("got %v", err)
	}
}

func TestTemplateCannotReplaceTheLockFile(t *testing.T) {
	for _, path := range []string{".orrery-lock", ".orrery-lock/below"} {
		b := newBench(t)
		plan := fleet.Plan{Static: true, Layers: []fleet.PlanLayer{b.layer("a", map[string]string{path: "mine", "config": "template"})}}
		if _, err := b.build(plan); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"config": "template"}, b.tree(b.builder.Dir(placement(), fleet.Plan{Static: true}))); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestNothingIsWrittenOutside(t *testing.T) {
	outside := t.TempDir()
	t.Run("by a template's path", func(t *testing.T) {
		for _, path := range []string{"../x", "/x", "a/../../x", "a//x", "."} {
			b := newBench(t)
			e, content := file(path, "bad")
			b.contents[e.SHA256] = []byte(content)
			_, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", nil, e)}})
			mustFail(t, err, fleet.ReasonPrepareFailed)
		}
	})
	t.Run("by a template's link", func(t *testing.T) {
		for _, target := range []string{"/etc", "../x", "a/../../x", ""} {
			b := newBench(t)
			e := content.ManifestEntry{Path: "link", Kind: content.FileSymlink, Target: target}
			_, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", nil, e)}})
			mustFail(t, err, fleet.ReasonPrepareFailed)
		}
	})
	t.Run("by a template's link through another's", func(t *testing.T) {
		b := newBench(t)
		up := content.ManifestEntry{Path: "p/q/up", Kind: content.FileSymlink, Target: "../.."}
		through := content.ManifestEntry{Path: "p/q/through", Kind: content.FileSymlink, Target: "up/../x"}
		_, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", nil, up), b.layer("b", nil, through)}})
		mustFail(t, err, fleet.ReasonPrepareFailed)
		for _, alone := range []content.ManifestEntry{up, through} {
			if _, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{b.layer("c", nil, alone)}}); err != nil {
				t.Errorf("%s alone: %v", alone.Path, err)
			}
		}
	})
	t.Run("by a server's link", func(t *testing.T) {
		b := newBench(t)
		plan := fleet.Plan{Static: true, Override: true}
		if _, err := b.build(plan); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(b.builder.Dir(placement(), fleet.Plan{Static: true}), "x")); err != nil {
			t.Fatal(err)
		}
		plan.Layers = []fleet.PlanLayer{b.layer("a", map[string]string{"x/y": "bad"})}
		_, err := b.build(plan)
		mustFail(t, err, fleet.ReasonPrepareFailed)
	})
	if inside, err := os.ReadDir(outside); err != nil || len(inside) > 0 {
		t.Errorf("outside: %v, %v", inside, err)
	}
}

func mustFail(t *testing.T, err error, reason fleet.Reason) {
	t.Helper()
	var f *workspace.Failure
	if !errors.As(err, &f) || f.Reason != reason || f.Message == "" {
		t.Errorf("got %v, want a failure of reason %s", err, reason)
	}
}

func TestAFailureLeavesNothingBehind(t *testing.T) {
	b := newBench(t)
	l := b.layer("a", map[string]string{"x": "1", "y": "2"})
	delete(b.contents, sum([]byte("2")))
	_, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{l}})
	mustFail(t, err, fleet.ReasonTemplateFetch)
	_, err = b.build(fleet.Plan{Layers: []fleet.PlanLayer{{TemplateRef: content.TemplateRef{Group: "t", Name: "gone"}}}})
	mustFail(t, err, fleet.ReasonTemplateMissing)
	_, err = b.build(fleet.Plan{Layers: []fleet.PlanLayer{{TemplateRef: content.TemplateRef{Group: "t", Name: "own"}, Storage: "web"}}})
	mustFail(t, err, fleet.ReasonTemplateMissing)
	if f := new(workspace.Failure); !errors.As(err, &f) || f.Message != "storage web has no template t/own" {
		t.Errorf("another storage: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(b.data, "running")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestCorruptBlobIsFetchedAgain(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "content"})}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	hash := sum([]byte("content"))
	cached := filepath.Join(b.data, "blobs", hash[:2], hash)
	if err := errors.Join(os.Chmod(cached, 0o600), os.WriteFile(cached, []byte("damaged!"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	if got := b.tree(b.builder.Dir(placement(), fleet.Plan{}))["x"]; got != "content" {
		t.Errorf("got %q", got)
	}
	b.contents[hash] = []byte("forged")
	if err := os.Remove(cached); err != nil {
		t.Fatal(err)
	}
	_, err := b.build(plan)
	mustFail(t, err, fleet.ReasonTemplateFetch)
}

func TestCanceledBuildLeavesNothing(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	plan := fleet.Plan{Layers: []fleet.PlanLayer{b.layer("a", map[string]string{"x": "1"})}}
	_, err := b.builder.Build(ctx, workspace.Request{Placement: placement(), Plan: plan})
	if !errs.Is(err, errs.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(b.data, "running")); err == nil && len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLayerIsWarmWithoutItsReplacedFiles(t *testing.T) {
	b := newBench(t)
	cache, err := blobcache.Open(filepath.Join(b.data, "blobs"), b.shelf, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.builder = workspace.New(b.data, cache)
	below := b.layer("below", map[string]string{"jar": "large", "config": "its own"})
	above := b.layer("above", map[string]string{"config": "ours"})
	delete(b.contents, sum([]byte("its own"))) // not needed
	if _, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{below, above}}); err != nil {
		t.Fatal(err)
	}
	want := []string{below.Digest, above.Digest}
	slices.Sort(want)
	if diff := cmp.Diff(want, cache.Warm()); diff != "" {
		t.Error(diff)
	}
}

func TestTemplateDeletedDuringBuildFailsTheStart(t *testing.T) {
	for _, gone := range []string{"the list", "a file"} {
		b := newBench(t)
		l := b.layer("a", map[string]string{"x": "1", "y": "2"})
		manifest := b.manifests[l.Digest]
		if gone == "the list" {
			delete(b.manifests, l.Digest)
		} else {
			delete(b.contents, sum([]byte("2")))
		}
		_, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{l}})
		mustFail(t, err, fleet.ReasonTemplateFetch)
		if err == nil || !strings.Contains(err.Error(), "deleted") || !strings.Contains(err.Error(), "start the instance again") {
			t.Errorf("%s: it says %v", gone, err)
		}
		if left, err := os.ReadDir(filepath.Join(b.data, "running")); err == nil && len(left) > 0 {
			t.Errorf("%s: left behind: %v", gone, left)
		}
		b.manifests[l.Digest], b.contents[sum([]byte("2"))] = manifest, []byte("2")
		if _, err := b.build(fleet.Plan{Layers: []fleet.PlanLayer{l}}); err != nil {
			t.Errorf("%s: after it is back: %v", gone, err)
		}
	}
}

func TestNamesThatDifferInCaseAreTwoFiles(t *testing.T) {
	b := newBench(t)
	plan := fleet.Plan{Layers: []fleet.PlanLayer{
		b.layer("a", map[string]string{"Config.yml": "1", "config.yml": "2"}), b.layer("b", map[string]string{"CONFIG.yml": "3", "Config.yml": "4"}),
	}}
	if _, err := b.build(plan); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Config.yml": "4", "config.yml": "2", "CONFIG.yml": "3"}
	if diff := cmp.Diff(want, b.tree(b.builder.Dir(placement(), fleet.Plan{}))); diff != "" {
		t.Error(diff)
	}
}
