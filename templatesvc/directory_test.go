package templatesvc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// other is a template that tests publish to know that all before it was looked at.
func (w *world) other(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(w.dir, "other", name, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	await.That(t, "template other/"+name, func() string {
		_, err := store.Get(t.Context(), w.c, store.TemplateHeadKey(fleet.TemplateRef{Group: "other", Name: name}))
		return await.Unless(err == nil, "%v", err)
	})
}

func TestOnlyItsOwnTemplatesAreRetracted(t *testing.T) {
	w := newWorld(t)
	w.write("f", "one", 0o644)
	_, stop := w.start("a")
	stop()
	if err := os.RemoveAll(filepath.Join(w.dir, ref.Group)); err != nil {
		t.Fatal(err)
	}
	another := &world{t: t, c: w.c, dir: t.TempDir(), blobs: t.TempDir()}
	_, stopOther := another.start("b")
	await.That(t, "the other replica's session", func() string {
		n, err := store.Count(t.Context(), w.c, store.Sessions("templatesvc"))
		return await.Unless(err == nil && n == 1, "%d, %v", n, err)
	})
	heads := map[string]fleet.TemplateHead{
		"api":  {Digest: "1"},
		"git":  {Digest: "1", SourceDigest: "1", Origin: "my-repository"},
		"from": {Digest: "1", SourceDigest: "1", Origin: fleet.DirectoryOrigin},
		"old":  {Digest: "1", SourceDigest: "1"}, // from before origins were told
	}
	for name, h := range heads {
		h.TemplateRef = fleet.TemplateRef{Group: "elsewhere", Name: name}
		if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(store.TemplateHeadKey(h.TemplateRef), h)}}); err != nil {
			t.Fatal(err)
		}
	}
	left := func() map[string]bool {
		all, _, err := store.List(t.Context(), w.c, store.TemplateHeads())
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, h := range all {
			names[h.Name] = true
		}
		return names
	}
	_, stopThird := w.start("c") // beside another replica, whose directory these templates may be in
	if names := left(); len(names) != len(heads) {
		t.Errorf("beside another replica %v are left", names)
	}
	stopOther()
	stopThird()
	w.start("a") // no replica but one without these templates: they are gone
	await.That(t, "only what the directory published is retracted", func() string {
		names := left()
		return await.Unless(len(names) == 2 && names["api"] && names["git"], "%v are left", names)
	})
}

func TestWhatAnotherSourcePublishesIsNotTakenOver(t *testing.T) {
	w := newWorld(t)
	theirs := fleet.TemplateHead{TemplateRef: ref, Digest: "1", SourceDigest: "1", Origin: "my-repository"}
	if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(store.TemplateHeadKey(ref), theirs)}}); err != nil {
		t.Fatal(err)
	}
	w.write("f", "one", 0o644)
	w.start("a")
	w.other(t, "later")
	if h, ok := w.head(); !ok || h.Digest != "1" {
		t.Errorf("the head is %+v now", h)
	}
}

func TestAFileThatIsBeingWrittenIsNotPublished(t *testing.T) {
	w := newWorld(t)
	w.write("f", "one", 0o644)
	s, _ := w.start("a")
	before, _ := w.head()
	f, err := os.Create(filepath.Join(w.dir, ref.Group, ref.Name, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("half of "); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1", "2", "3"} { // each is quiet later than the file is
		w.other(t, name)
		if h, _ := w.head(); h.Digest != before.Digest {
			t.Fatal("half a file was published")
		}
	}
	if _, err := f.WriteString("two"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	after := w.await("published once it is closed", func(h fleet.TemplateHead, _ bool) bool { return h.Digest != before.Digest })
	if got, _ := content(t, clientOf(s), after.Digest, "f"); got != "half of two" {
		t.Errorf("published %q", got)
	}
}

func TestAServiceWithoutADirectoryPublishesNothing(t *testing.T) {
	w := newWorld(t)
	w.dir = ""
	w.start("a")
	if _, ok := w.head(); ok {
		t.Error("something was published")
	}
}
