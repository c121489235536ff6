package templatesvc_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// forget deletes a source, as the gateway does.
func (w *world) forget(name string) {
	w.t.Helper()
	s, err := store.Get(w.t.Context(), w.c, keys.TemplateSource(name))
	if err == nil {
		_, err = w.c.Commit(w.t.Context(), store.Txn{Writes: []store.Write{store.Remove(keys.TemplateSource(name), s.ModRev)}})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestWhatADeletedSourcePublishedIsAnybodys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	b := zipOf(t, "f", "one")
	s := httptest.NewServer(&server{files: map[string][]byte{"/a.zip": b}})
	defer s.Close()
	source := content.TemplateSource{Kind: content.SourceHTTP, URL: s.URL + "/a.zip", SHA256: hashOf(b), Template: ref}
	record := func(name string, asked int64) {
		source.Name, source.Asked = name, asked
		w.record(source, content.SourceCredentials{Token: "token"})
	}
	a, _ := w.start("a")
	c := clientOf(a)
	edit := func() error {
		_, err := c.PutFile(t.Context(), by("g"), 0, false, strings.NewReader("mine"))
		return err
	}
	remove := func() error { return c.DeleteTemplate(t.Context(), ref, client.Asked{Author: "ada"}) }
	record("one", 0)
	w.status("one", content.SourceInSync)
	for what, err := range map[string]error{"edit": edit(), "delete": remove()} {
		if !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "delete the source") {
			t.Errorf("%s of what a living source publishes: %v", what, err)
		}
	}
	record("two", 0)
	w.status("two", content.SourceFailed)

	w.forget("one")
	if err := edit(); err != nil {
		t.Errorf("edit once the source is deleted: %v", err)
	}
	record("two", 1)
	w.status("two", content.SourceInSync)
	if h, _ := w.head(); h.Origin != "two" {
		t.Errorf("it was not taken over: %+v", h)
	}
	if err := edit(); !errs.Is(err, errs.Conflict) {
		t.Errorf("edit of what was taken over: %v", err)
	}
	w.forget("two")
	if err := remove(); err != nil {
		t.Errorf("delete once the source is deleted: %v", err)
	}
}

func TestATemplateOfADirectoryIsDeletedThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	_, stop := w.start("a")
	w.directory("a", content.SourceInSync, "")
	other := &world{t: t, c: w.c, blobs: t.TempDir()}
	b, _ := other.start("b")
	refused := func(when string) {
		t.Helper()
		err := clientOf(b).DeleteTemplate(t.Context(), ref, client.Asked{Author: "ada"})
		if !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "remove g/t there") {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("while its replica runs")
	stop()
	await.That(t, "the session of a ends", func() string {
		n, err := store.Count(t.Context(), w.c, keys.Sessions("templatesvc"))
		return await.Unless(err == nil && n == 1, "%d, %v", n, err)
	})
	refused("while its replica is away")
}
