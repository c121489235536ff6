package templatesvc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// other publishes another template and waits for it, so that all earlier changes have been
// seen.
func (w *world) other(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(w.dir, "other", name, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	await.That(t, "template other/"+name, func() string {
		_, err := store.Get(t.Context(), w.c, keys.TemplateHead(content.TemplateRef{Group: "other", Name: name}))
		return await.Unless(err == nil, "%v", err)
	})
}

func TestOnlyItsOwnTemplatesAreRetracted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	drop(t, w.dir, "g/stays")
	_, stop := w.start("a")
	stop()
	if err := os.RemoveAll(filepath.Join(w.dir, ref.Group, ref.Name)); err != nil {
		t.Fatal(err)
	}
	another := &world{t: t, c: w.c, dir: t.TempDir(), blobs: t.TempDir()}
	_, stopOther := another.start("b")
	await.That(t, "the other replica's session", func() string {
		n, err := store.Count(t.Context(), w.c, keys.Sessions("templatesvc"))
		return await.Unless(err == nil && n == 1, "%d, %v", n, err)
	})
	heads := map[string]content.TemplateHead{
		"api":  {Digest: "1"},
		"git":  {Digest: "1", SourceDigest: "1", Origin: "my-repository"},
		"from": {Digest: "1", SourceDigest: "1", Origin: content.DirectoryOrigin},
		"old":  {Digest: "1", SourceDigest: "1"}, // from a version without Origin
	}
	for name, h := range heads {
		h.TemplateRef = content.TemplateRef{Group: "elsewhere", Name: name}
		if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.TemplateHead(h.TemplateRef), h)}}); err != nil {
			t.Fatal(err)
		}
	}
	left := func() map[string]bool {
		all, _, err := store.List(t.Context(), w.c, keys.TemplateHeads())
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, h := range all {
			names[h.Name] = true
		}
		return names
	}
	_, stopThird := w.start("c")                                                  // while another replica lives, whose directory may hold these templates
	w.settles("elsewhere/api elsewhere/from elsewhere/git elsewhere/old g/stays") // it runs where a did, which had the other directory
	if names := left(); len(names) != len(heads)+1 || !names["stays"] {
		t.Errorf("beside another replica %v are left", names)
	}
	stopOther()
	stopThird()
	w.start("a") // alone, and not known to have seen these
	w.directory("a", content.SourceHeld, "kept: 2 of 3 templates")
	if names := left(); len(names) != len(heads)+1 {
		t.Errorf("%v are left", names)
	}
}

// directory waits for the status of a replica's template directory.
func (w *world) directory(replica string, state content.SourceState, message string) (d content.TemplateDirectory) {
	w.t.Helper()
	await.That(w.t, "the directory of "+replica+" "+string(state), func() (told string) {
		var err error
		d, err = store.Get(w.t.Context(), w.c, keys.TemplateDirectory(replica))
		return await.Unless(err == nil && d.State == state && strings.Contains(d.Message, message), "%+v, %v", d, err)
	})
	return d
}

// confirm requests a look at the directories, as the gateway does.
func (w *world) confirm(revision string) {
	w.t.Helper()
	old, err := store.Get(w.t.Context(), w.c, keys.DirectorySync())
	if err != nil && !errs.Is(err, errs.NotFound) {
		w.t.Fatal(err)
	}
	next := content.DirectorySync{Asked: old.Asked + 1, Confirmed: revision}
	if _, err := w.c.Commit(w.t.Context(), store.Txn{Writes: []store.Write{store.Replace(keys.DirectorySync(), next, old.ModRev)}}); err != nil {
		w.t.Fatal(err)
	}
}

// drop creates templates with one file each in a directory.
func drop(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "f"), []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// settles waits until exactly these templates exist.
func (w *world) settles(want string) {
	w.t.Helper()
	await.That(w.t, "templates "+want, func() string { return await.Unless(w.names() == want, "%s", w.names()) })
}

func TestADirectoryThatLosesMostOrAllIsHeldUntilItIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/a", "g/b", "g/c", "g/d", "g/e", "g/f")
	w.start("a")
	w.has("g/a g/b g/c g/d g/e g/f")
	if err := os.RemoveAll(filepath.Join(w.dir, "g/a")); err != nil { // a single one may always be removed
		t.Fatal(err)
	}
	w.settles("g/b g/c g/d g/e g/f")
	if err := os.Rename(filepath.Join(w.dir, "g"), w.dir+".gone"); err != nil { // all at once
		t.Fatal(err)
	}
	w.confirm("another revision")
	held := w.directory("a", content.SourceHeld, "would be removed")
	if held.Held == "" || !strings.Contains(held.Message, held.Held) {
		t.Errorf("%+v", held)
	}
	w.has("g/b g/c g/d g/e g/f")
	drop(t, w.dir, "new/t") // new templates are still published
	w.settles("g/b g/c g/d g/e g/f new/t")
	w.confirm("")
	w.directory("a", content.SourceHeld, "would be removed")
	w.confirm(w.directory("a", content.SourceHeld, "").Held)
	w.settles("new/t")
	w.directory("a", content.SourceInSync, "")

	// The last template is no exception: a missing template is not a removal request.
	if err := os.RemoveAll(filepath.Join(w.dir, "new")); err != nil {
		t.Fatal(err)
	}
	w.confirm("")
	w.directory("a", content.SourceHeld, "would be removed (new/t)")
	w.has("new/t")
}

func TestAnotherDirectoryAtTheSamePathRemovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/a", "g/b")
	_, stop := w.start("a")
	real := w.dir + ".away"
	swap := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	mount := func(names ...string) { // as if another file system were mounted there, or none
		swap(w.dir, real)
		if err := os.Mkdir(w.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		drop(t, w.dir, names...)
	}
	umount := func() {
		if err := os.RemoveAll(w.dir); err != nil {
			t.Fatal(err)
		}
		swap(real, w.dir)
	}
	mount() // an empty mount point
	w.confirm("")
	w.directory("a", content.SourceHeld, "kept: 2 of 2 templates")
	if _, err := os.Stat(filepath.Join(w.dir, ".orrery")); !os.IsNotExist(err) {
		t.Error("a bare mount point was given an id")
	}
	stop()
	umount()
	mount("g/other")
	_, stop = w.start("a")
	w.directory("a", content.SourceHeld, "kept: 2 of 3 templates")
	w.has("g/a g/b g/other")
	stop()
	umount()

	// The original directory is recognized, and removals from it work again.
	w.start("a")
	w.directory("a", content.SourceHeld, "kept: 1 of 3 templates")
	if err := os.RemoveAll(filepath.Join(w.dir, "g/b")); err != nil {
		t.Fatal(err)
	}
	w.settles("g/a g/other")
	w.confirm(w.directory("a", content.SourceHeld, "kept: 1 of 2 templates").Held)
	w.settles("g/a")
}

func TestReplicasWhoseDirectoriesDifferDoNotFight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/t", "g/mine")
	w.start("a")
	before, _ := w.head()
	other := &world{t: t, c: w.c, dir: t.TempDir(), blobs: w.blobs}
	drop(t, other.dir, "g/t", "g/theirs")
	await.That(t, "the session of a", func() string {
		n, err := store.Count(t.Context(), w.c, keys.Sessions("templatesvc"))
		return await.Unless(err == nil && n == 1, "%d, %v", n, err)
	})
	more := filepath.Join(other.dir, "g/t/more")
	if err := os.WriteFile(more, []byte("more"), 0o644); err != nil {
		t.Fatal(err)
	}
	other.start("b")
	await.That(t, "both sessions", func() string {
		n, err := store.Count(t.Context(), w.c, keys.Sessions("templatesvc"))
		return await.Unless(err == nil && n == 2, "%d, %v", n, err)
	})
	for i := range 3 { // each reads its whole directory, and new templates there
		w.confirm("")
		w.other(t, fmt.Sprintf("a%d", i))
		other.other(t, fmt.Sprintf("b%d", i))
		if names := w.names(); !strings.HasPrefix(names, "g/mine g/t g/theirs ") {
			t.Errorf("templates %s", names)
		}
	}
	if now, _ := w.head(); now.ModRev != before.ModRev {
		t.Errorf("%+v was published by the second directory", now)
	}
	// A later change there is intended, and the first replica keeps it.
	if err := os.WriteFile(more, []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	changed := w.await("published", func(h content.TemplateHead, _ bool) bool { return h.Digest != before.Digest })
	w.confirm("")
	w.other(t, "later")
	if now, _ := w.head(); now.Digest != changed.Digest {
		t.Error("the first directory published its own again")
	}
	// The template is removed here, but stays as the other replica has it. The rename
	// removes it at once, because removing single files would be a change.
	if err := os.Rename(filepath.Join(w.dir, "g/t"), filepath.Join(t.TempDir(), "t")); err != nil {
		t.Fatal(err)
	}
	w.other(t, "last")
	if _, ok := w.head(); !ok {
		t.Error("what the other directory has was removed")
	}
}

func TestWhatAnotherSourcePublishesIsNotTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs := content.TemplateHead{TemplateRef: ref, Digest: "1", SourceDigest: "1", Origin: "my-repository"}
	if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.TemplateHead(ref), theirs)}}); err != nil {
		t.Fatal(err)
	}
	w.record(content.TemplateSource{Name: "my-repository", Kind: content.SourceGit, URL: "file:///nowhere", Paused: true}, content.SourceCredentials{})
	w.write("f", "one", 0o644)
	w.start("a")
	w.other(t, "later")
	if h, ok := w.head(); !ok || h.Digest != "1" {
		t.Errorf("the head is %+v now", h)
	}
}

func TestAFileThatIsBeingWrittenIsNotPublished(t *testing.T) {
	t.Parallel()
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
	for _, name := range []string{"1", "2", "3"} { // each settles later than its file
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
	after := w.await("published once it is closed", func(h content.TemplateHead, _ bool) bool { return h.Digest != before.Digest })
	if got, _ := contentOf(t, clientOf(s), after.Digest, "f"); got != "half of two" {
		t.Errorf("published %q", got)
	}
}

func TestATemplateThatIsBeingCopiedIsNotPublishedByALookAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.still = 20 * time.Second // new templates wait three times as long, limited to a minute
	drop(t, w.dir, "g/whole")
	w.start("a")
	before := w.directory("a", content.SourceInSync, "")
	drop(t, w.dir, "g/half")
	w.confirm("")
	await.That(t, "it was looked at as asked", func() string {
		d, err := store.Get(t.Context(), w.c, keys.TemplateDirectory("a"))
		return await.Unless(err == nil && d.At.After(before.At), "%+v, %v", d, err)
	})
	if names := w.names(); names != "g/whole" {
		t.Errorf("%s are published", names)
	}
}

func TestTheDirectoryTellsWhatItRefusesByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/t", "g/bad name", "g/link")
	if err := os.Symlink("/etc/hostname", filepath.Join(w.dir, "g", "link", "out")); err != nil {
		t.Fatal(err)
	}
	_, stop := w.start("a")
	told := w.directory("a", content.SourceFailed, "(nor are 1 more)")
	if len(told.Items) != 2 || told.Items[0].Template.Name != "bad name" || !strings.Contains(told.Items[0].Message, "rename it") || !strings.Contains(told.Items[1].Message, "out") {
		t.Errorf("it tells %+v", told.Items)
	}
	if told.Since.IsZero() || told.At.Before(told.Since) {
		t.Errorf("it was there since %s, and looked at %s", told.Since, told.At)
	}
	stop()
	if err := os.RemoveAll(filepath.Join(w.dir, "g", "bad name")); err != nil {
		t.Fatal(err)
	}
	w.start("a")
	if again := w.directory("a", content.SourceFailed, "out"); len(again.Items) != 1 || !again.Since.Equal(told.Since) || !again.At.After(told.At) {
		t.Errorf("after a start it tells %+v", again)
	}
}

func TestAServiceWithoutADirectoryPublishesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	w.start("a")
	if _, ok := w.head(); ok {
		t.Error("something was published")
	}
}

func TestAfterAStartWhatIsEmptyMayBeUnmounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	drop(t, w.dir, "g/a", "g/b", "mounted/c", "other/d", "other/e")
	_, stop := w.start("a")
	w.has("g/a g/b mounted/c other/d other/e")
	stop()
	head := func() content.TemplateHead {
		h, err := store.Get(t.Context(), w.c, keys.TemplateHead(content.TemplateRef{Group: "other", Name: "d"}))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	before := head()
	// The mount points of a group and of a template remain; another template is deleted.
	if err := errors.Join(os.RemoveAll(filepath.Join(w.dir, "mounted/c")), os.Remove(filepath.Join(w.dir, "other/d/f")), os.RemoveAll(filepath.Join(w.dir, "g/b"))); err != nil {
		t.Fatal(err)
	}
	w.start("a")
	w.settles("g/a mounted/c other/d other/e")
	held := w.directory("a", content.SourceHeld, "kept: 1 of ")
	if !strings.Contains(held.Message, "(mounted/c)") {
		t.Errorf("%+v", held)
	}
	if now := head(); now.Digest != before.Digest {
		t.Errorf("nothing was published as %+v", now)
	}
	// The template is mounted and then emptied, which is intended.
	f := filepath.Join(w.dir, "other/d/f")
	if err := os.WriteFile(f, []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	published := func(what string, since string) string {
		t.Helper()
		await.That(t, what, func() string { return await.Unless(head().Digest != since, "%+v", head()) })
		return head().Digest
	}
	another := published("its file", before.Digest)
	if err := os.Remove(f); err != nil {
		t.Fatal(err)
	}
	published("no file", another)
	w.confirm(held.Held)
	w.settles("g/a other/d other/e")
}
