package templatesvc_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// allow replaces the allow list in the cluster's settings.
func (w *world) allow(entries ...string) {
	w.t.Helper()
	active, err := store.Get(w.t.Context(), w.c, keys.ConfigActive())
	if err != nil {
		w.t.Fatal(err)
	}
	active.Patch.AllowedEgress = &entries
	if _, err := w.c.Commit(w.t.Context(), store.Txn{Writes: []store.Write{store.Replace(keys.ConfigActive(), active, active.ModRev)}}); err != nil {
		w.t.Fatal(err)
	}
}

func TestASourceInAPrivateNetworkIsRefusedUntilTheListNamesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	w.allow()
	b := zipOf(t, "f", "one")
	s := httptest.NewServer(&server{files: map[string][]byte{"/a.zip": b}})
	defer s.Close()
	w.start("a")
	w.record(content.TemplateSource{Name: "web", Kind: content.SourceHTTP, URL: s.URL + "/a.zip", SHA256: hashOf(b), Template: ref, IntervalSeconds: 3600}, content.SourceCredentials{Token: "token"})
	w.record(content.TemplateSource{Name: "git", Kind: content.SourceGit, URL: s.URL + "/r.git", Group: "g", IntervalSeconds: 3600}, content.SourceCredentials{})
	w.record(content.TemplateSource{Name: "bucket", Kind: content.SourceS3, URL: s.URL, Bucket: "bucket", PathStyle: true, Group: "g", IntervalSeconds: 3600}, content.SourceCredentials{AccessKey: "a", SecretKey: "b"})
	for _, name := range []string{"web", "git", "bucket"} {
		st := w.status(name, content.SourceFailed)
		if !strings.Contains(st.Message, "127.0.0.1 is a loopback address") || !strings.Contains(st.Message, "network.allowedEgress") {
			t.Errorf("%s: %s", name, st.Message)
		}
	}
	w.allow("127.0.0.0/8")
	w.status("web", content.SourceInSync) // at once, not at the next interval
}

func TestTheCatalogDownloadsNothingFromAPrivateNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.allow("10.0.0.0/8")
	b := []byte("a jar")
	s := httptest.NewServer(&server{files: map[string][]byte{"/a.jar": b}})
	defer s.Close()
	service, _ := w.start("a")
	_, err := clientOf(service).Pin(t.Context(), s.URL+"/a.jar")
	if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "downloadUrl" || !strings.Contains(errs.MessageOf(err), "127.0.0.1 is a loopback address") {
		t.Errorf("%v", err)
	}
}
