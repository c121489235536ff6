package templatesvc_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// desk is a world with a service for editing templates.
type desk struct {
	*world
	*client.Client
}

func newDesk(t *testing.T) desk {
	w := newWorld(t)
	a, _ := w.start("a")
	b, _ := w.start("b")
	return desk{w, clientOf(a, b)}
}

func by(path string) client.Change {
	return client.Change{Ref: ref, Asked: client.Asked{Author: "ada"}, Path: path, Create: true}
}

// put writes a file and returns the new version.
func (d desk) put(path, content string) string {
	d.t.Helper()
	e, err := d.PutFile(d.t.Context(), by(path), 0, false, strings.NewReader(content))
	if err != nil {
		d.t.Fatal(err)
	}
	return e.Head.Digest
}

// files lists the files of a version with their content.
func (d desk) files(digest string) string {
	d.t.Helper()
	list, err := d.Files(d.t.Context(), digest, "", true)
	if err != nil {
		d.t.Fatal(err)
	}
	var out strings.Builder
	for _, e := range list {
		if e.Kind != content.FileRegular {
			fmt.Fprintf(&out, "%s(%s) ", e.Path, e.Kind)
			continue
		}
		content, _ := contentOf(d.t, d.Client, digest, e.Path)
		fmt.Fprintf(&out, "%s=%s ", e.Path, content)
	}
	return strings.TrimSpace(out.String())
}

func TestEachEditIsAVersionWithItsAuthor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.put("a/b", "one")
	second := d.put("a/b", "two")
	e, err := d.Edit(t.Context(), by(""), client.Op{Op: "mkdir", Path: "n"}, client.Op{Op: "rename", Path: "a/b", To: "c"}, client.Op{Op: "delete", Path: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if got := []string{d.files(first), d.files(second), d.files(e.Head.Digest)}; fmt.Sprint(got) != "[a/b=one a/b=two c=two n(dir)]" {
		t.Errorf("versions hold %q", got)
	}
	moves, _, err := store.List(t.Context(), d.c, keys.TemplateMoves(ref))
	if err != nil || len(moves) != 3 || d.versions() != 3 {
		t.Fatalf("%d moves, %v, %d versions", len(moves), err, d.versions())
	}
	if m := moves[2]; m.Author != "ada" || m.Kind != content.MoveEdit || m.Previous != second || m.Message != "mkdir n, rename a/b to c, delete a" {
		t.Errorf("%+v", m)
	}
	if head, _ := d.head(); head.ModRev != e.Revision || head.Digest != e.Head.Digest {
		t.Errorf("told revision %d of %+v", e.Revision, head)
	}
}

func TestARefusedEditChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.put("a", "one")
	before, _ := d.head()
	op := func(kind, path, to string) error {
		_, err := d.Edit(t.Context(), client.Change{Ref: ref}, client.Op{Op: "mkdir", Path: "fine"}, client.Op{Op: kind, Path: path, To: to})
		return err
	}
	put := func(c client.Change, only bool) error {
		c.Ref = content.TemplateRef{Group: ref.Group, Name: cmp.Or(c.Ref.Name, ref.Name)}
		_, err := d.PutFile(t.Context(), c, 0, only, strings.NewReader("new"))
		return err
	}
	for name, c := range map[string]struct {
		err   error
		kind  errs.Kind
		field string
	}{
		"a path that leads out":   {put(client.Change{Path: "../x"}, false), errs.Malformed, "path"},
		"no path":                 {put(client.Change{}, false), errs.Malformed, "path"},
		"the agent's own file":    {put(client.Change{Path: ".orrery-lock"}, false), errs.Malformed, "path"},
		"a file that exists":      {put(client.Change{Path: "a"}, true), errs.AlreadyExists, ""},
		"below a file":            {put(client.Change{Path: "a/b"}, false), errs.Conflict, ""},
		"a name in other letters": {put(client.Change{Path: "A"}, false), errs.Invalid, ""},
		"an unknown template":     {put(client.Change{Ref: content.TemplateRef{Name: "none"}, Path: "a"}, false), errs.NotFound, ""},
		"a stale hash":            {put(client.Change{Path: "a", IfMatch: strings.Repeat("0", 64)}, false), errs.Conflict, client.Stale},
		"a hash of no file":       {put(client.Change{Path: "b", IfMatch: "*"}, false), errs.Conflict, client.Stale},
		"an unknown operation":    {op("burn", "a", ""), errs.Invalid, "op"},
		"what is not there":       {op("delete", "none", ""), errs.NotFound, ""},
		"a move out":              {op("rename", "a", "../a"), errs.Malformed, "to"},
		"no archive":              {op("extract", "a", ""), errs.Malformed, ""},
	} {
		if !errs.Is(c.err, c.kind) || errs.FieldOf(c.err) != c.field {
			t.Errorf("%s: %v, blaming %q", name, c.err, errs.FieldOf(c.err))
		}
	}
	if after, _ := d.head(); after.ModRev != before.ModRev || d.versions() != 1 {
		t.Errorf("the head is %+v, %d versions", after, d.versions())
	}
}

func TestTenEditsAtOnceAreTenVersions(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	base := d.put("counter", "0")
	list, err := d.Files(t.Context(), base, "", false)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 10 {
		wg.Go(func() {
			if _, err := d.PutFile(t.Context(), by(fmt.Sprintf("f%d", i)), 0, false, strings.NewReader("x")); err != nil {
				t.Errorf("edit %d: %v", i, err)
			}
			c := by("counter")
			c.IfMatch = list[0].SHA256
			_, err := d.PutFile(t.Context(), c, 0, false, strings.NewReader(fmt.Sprint(i+1)))
			if err != nil && errs.FieldOf(err) != client.Stale {
				t.Errorf("edit %d of one file: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			}
		})
	}
	wg.Wait()
	moves, _, err := store.List(t.Context(), d.c, keys.TemplateMoves(ref))
	if err != nil || len(moves) != 12 || won != 1 {
		t.Errorf("%d moves, %v; %d of ten who had read the same file wrote it", len(moves), err, won)
	}
	head, _ := d.head()
	if got := strings.Count(d.files(head.Digest), "=x"); got != 10 {
		t.Errorf("%d of ten files are in the head", got)
	}
}

func TestAnExportedTemplateIsImportedAsItWas(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.put("bin/run", "x")
	if _, err := d.PutFile(t.Context(), by("bin/run"), 0o755, false, strings.NewReader("#!/bin/sh\n")); err != nil {
		t.Fatal(err)
	}
	d.put("data", "\x00\xff"+strings.Repeat("z", 3<<20))
	e, err := d.Edit(t.Context(), by(""), client.Op{Op: "mkdir", Path: "empty/er"})
	if err != nil {
		t.Fatal(err)
	}
	for i, format := range []string{"zip", "tar", "tar.gz", "tar.zst"} {
		packed, err := d.Archive(t.Context(), e.Head.Digest, "", format)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(packed)
		_ = packed.Close()
		if err != nil {
			t.Fatal(err)
		}
		c := client.Change{Ref: content.TemplateRef{Group: "copy", Name: fmt.Sprint("n", i)}, Asked: client.Asked{Author: "ada"}, Create: true}
		got, err := d.Import(t.Context(), c, true, "", bytes.NewReader(body))
		if err != nil || got.Head.Digest != e.Head.Digest {
			t.Errorf("%s: %s, %v, want %s", format, got.Head.Digest, err, e.Head.Digest)
		}
	}
	if _, err := d.Archive(t.Context(), e.Head.Digest, "", "rar"); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "format" {
		t.Errorf("an unknown format: %v", err)
	}
}

func TestAnUploadedFormIsOneVersion(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.put("dir/old", "stays")
	packed, err := d.Archive(t.Context(), d.put("dir/two", "2"), "dir", "zip")
	if err != nil {
		t.Fatal(err)
	}
	zip, err := io.ReadAll(packed)
	_ = packed.Close()
	if err != nil {
		t.Fatal(err)
	}
	before := d.versions()
	kind, form := formOf(t, map[string]string{"sub/x.txt": "x", "pack.zip": string(zip)})
	e, err := d.Upload(t.Context(), by("up"), false, kind, form)
	if err != nil || d.versions() != before+1 {
		t.Fatalf("%v, %d versions", err, d.versions())
	}
	if fmt.Sprint(e.Paths) != "[up/pack.zip up/sub/x.txt]" {
		t.Errorf("wrote %v", e.Paths)
	}
	c := by("")
	if e, err = d.Edit(t.Context(), c, client.Op{Op: "extract", Path: "up/pack.zip", Remove: true}); err != nil || e.Files == 0 {
		t.Fatal(err)
	}
	if got := d.files(e.Head.Digest); got != "dir/old=stays dir/two=2 up/old=stays up/sub/x.txt=x up/two=2" {
		t.Errorf("the head holds %s", got)
	}
	kind, form = formOf(t, map[string]string{"pack.zip": string(zip)})
	if e, err = d.Upload(t.Context(), by("ex"), true, kind, form); err != nil || fmt.Sprint(e.Paths) != "[ex/old ex/two]" {
		t.Errorf("extracted %v, %v", e.Paths, err)
	}
	for _, name := range []string{"../../evil", `..\evil`, "/etc/passwd", ""} {
		kind, form = formOf(t, map[string]string{name: "x"})
		if _, err := d.Upload(t.Context(), by("up"), false, kind, form); !errs.Is(err, errs.Malformed) {
			t.Errorf("a file called %q: %v", name, err)
		}
	}
	if _, err := d.Upload(t.Context(), by(""), false, "text/plain", strings.NewReader("x")); !errs.Is(err, errs.Malformed) {
		t.Errorf("no form: %v", err)
	}
	kind, form = formOf(t, map[string]string{"x.zip": "garbage"})
	if _, err := d.Upload(t.Context(), by(""), true, kind, form); !errs.Is(err, errs.Malformed) {
		t.Errorf("no archive: %v", err)
	}
}

func TestAFormThatBreaksOffIsRefusedAsThat(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	before := d.put("a", "1")
	kind, body := formOf(t, map[string]string{"f": strings.Repeat("text ", 100)})
	whole, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	for _, extract := range []bool{false, true} {
		for cut := range whole[:len(whole)-4] { // the last boundary may lack its line end
			_, err := d.Upload(t.Context(), by(""), extract, kind, bytes.NewReader(whole[:cut]))
			if !errs.Is(err, errs.Malformed) {
				t.Fatalf("cut after %d of %d bytes, extract %v: %v", cut, len(whole), extract, err)
			}
		}
	}
	if h, err := store.Get(t.Context(), d.c, keys.TemplateHead(ref)); err != nil || h.Digest != before {
		t.Errorf("the head is %+v, %v", h, err)
	}
}

func TestAFormWithAFileTwiceIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for range 2 {
		if _, err := w.CreateFormFile("file", "same"); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := d.Upload(t.Context(), by("sub"), false, w.FormDataContentType(), &b)
	if !errs.Is(err, errs.Malformed) || !strings.Contains(errs.MessageOf(err), "same") {
		t.Errorf("refused with %v", err)
	}
}

func TestWhatALinkLeadsToIsExportedAsTheDirectoryItself(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, h := range []*tar.Header{{Name: "real/sub/f", Size: 1, Mode: 0o644}, {Name: "link", Typeflag: tar.TypeSymlink, Linkname: "real"}} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(make([]byte, h.Size))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	e, err := d.Import(t.Context(), by(""), true, "tar", &packed)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, dir := range []string{"real", "link"} {
		body, err := d.Archive(t.Context(), e.Head.Digest, dir, "tar")
		if err != nil {
			t.Fatal(err)
		}
		h, err := tar.NewReader(body).Next()
		_ = body.Close()
		if err != nil || h.Name != "sub/f" {
			t.Errorf("%s: %+v, %v", dir, h, err)
		}
		list, err := d.Files(t.Context(), e.Head.Digest, dir, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			seen = append(seen, f.Path)
		}
	}
	if want := []string{"real/sub/f", "real/sub/f"}; !slices.Equal(seen, want) {
		t.Errorf("listed %v, want %v", seen, want)
	}
}

// formOf returns a form with files, sorted by name, and its media type.
func formOf(t *testing.T, files map[string]string, fields ...string) (kind string, body io.Reader) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, content := range sorted(files) {
		part, err := w.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, content)
	}
	for i := 0; i+1 < len(fields); i += 2 {
		if err := w.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), &b
}

func TestATemplateIsMadeOfAForm(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	made := d.put("a", "x")
	packed, err := d.Archive(t.Context(), made, "", "tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(packed)
	_ = packed.Close()
	if err != nil {
		t.Fatal(err)
	}
	kind, form := formOf(t, map[string]string{"x.tar.gz": string(body)}, "name", "other/n", "description", "from a file")
	imported, err := d.CreateOf(t.Context(), by(""), kind, form)
	if err != nil || imported.Head.TemplateRef.String() != "other/n" || imported.Head.Digest != made || imported.Head.Description != "from a file" {
		t.Errorf("%+v, %v", imported, err)
	}
	kind, form = formOf(t, map[string]string{"x.tar.gz": string(body)}, "name", "../n")
	if _, err := d.CreateOf(t.Context(), by(""), kind, form); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "name" {
		t.Errorf("a bad name: %v", err)
	}
}

func TestAnEditUnderAUsedNameIsToldByItsContent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	packed := func(content string) io.Reader {
		body, err := d.Archive(t.Context(), d.put("f", content), "", "tar.gz")
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		b, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(b)
	}
	for name, do := range map[string]func(c client.Change, content string) (client.Edited, error){
		"write": func(c client.Change, content string) (client.Edited, error) {
			c.Path = "f"
			return d.PutFile(t.Context(), c, 0, false, strings.NewReader(content))
		},
		"mkdir": func(c client.Change, content string) (client.Edited, error) {
			return d.Edit(t.Context(), c, client.Op{Op: "mkdir", Path: content})
		},
		"import": func(c client.Change, content string) (client.Edited, error) {
			return d.Import(t.Context(), c, false, "", packed(content))
		},
		"upload": func(c client.Change, content string) (client.Edited, error) {
			kind, body := formOf(t, map[string]string{"f": content}) // with another boundary each time
			return d.Upload(t.Context(), c, false, kind, body)
		},
		"create": func(c client.Change, content string) (client.Edited, error) {
			archive, err := io.ReadAll(packed(content))
			if err != nil {
				return client.Edited{}, err
			}
			kind, body := formOf(t, map[string]string{"f.tar.gz": string(archive)}, "name", "made/n")
			return d.CreateOf(t.Context(), c, kind, body)
		},
		"define": func(c client.Change, body string) (client.Edited, error) {
			return d.Define(t.Context(), c, client.Definitions{Variables: []content.Variable{{Key: body, Type: "STRING", Scope: "TEMPLATE"}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := client.Change{Ref: content.TemplateRef{Group: "edited", Name: name}, Asked: client.Asked{Author: "ada", Operation: "op" + name}, Create: true}
			made, err := do(c, "one")
			if err != nil {
				t.Fatal(err)
			}
			if again, err := do(c, "one"); err != nil || again.Head.Digest != made.Head.Digest {
				t.Errorf("again: %+v, %v", again, err)
			}
			if _, err := do(c, "two"); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != client.Reused {
				t.Errorf("with other content: %v", err)
			}
			if h, err := store.Get(t.Context(), d.c, keys.TemplateHead(made.Head.TemplateRef)); err != nil || h.Digest != made.Head.Digest {
				t.Errorf("the head is %+v, %v", h, err)
			}
		})
	}
}

func TestWhatIsSavedOfAnInstanceMayHaveChangedWhenItIsAskedForAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tarOf := func(content string) io.Reader {
		body, err := d.Archive(t.Context(), d.put("f", content), "", "tar")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = body.Close() })
		return body
	}
	c := client.Change{Ref: content.TemplateRef{Group: "g", Name: "saved"}, Asked: client.Asked{Author: "ada", Operation: "op1"}, Kind: content.MoveSave, Create: true}
	made, err := d.Import(t.Context(), c, false, "tar", tarOf("one"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Import(t.Context(), c, false, "tar", tarOf("two")); err != nil || again.Head.Digest != made.Head.Digest {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// sorted iterates over a map in the order of its keys.
func sorted(m map[string]string) func(func(k, v string) bool) {
	return func(yield func(k, v string) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
