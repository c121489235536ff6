package templatesvc_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// allow replaces the allow list among the settings of the cluster.
func (w *world) allow(entries ...string) {
	w.t.Helper()
	active, err := store.Get(w.t.Context(), w.c, store.ConfigActiveKey())
	if err != nil {
		w.t.Fatal(err)
	}
	active.Patch.AllowedEgress = &entries
	if _, err := w.c.Commit(w.t.Context(), store.Txn{Writes: []store.Write{store.Replace(store.ConfigActiveKey(), active, active.ModRev)}}); err != nil {
		w.t.Fatal(err)
	}
}

func TestASourceInAPrivateNetworkIsRefusedUntilTheListNamesIt(t *testing.T) {
	w := newWorld(t)
	w.dir = ""
	w.allow()
	b := zipOf(t, "f", "one")
	s := httptest.NewServer(&server{files: map[string][]byte{"/a.zip": b}})
	defer s.Close()
	w.start("a")
	w.record(fleet.TemplateSource{Name: "web", Kind: fleet.SourceHTTP, URL: s.URL + "/a.zip", SHA256: hashOf(b), Template: ref, IntervalSeconds: 3600}, fleet.SourceCredentials{Token: "token"})
	w.record(fleet.TemplateSource{Name: "git", Kind: fleet.SourceGit, URL: s.URL + "/r.git", Group: "g", IntervalSeconds: 3600}, fleet.SourceCredentials{})
	w.record(fleet.TemplateSource{Name: "bucket", Kind: fleet.SourceS3, URL: s.URL, Bucket: "bucket", PathStyle: true, Group: "g", IntervalSeconds: 3600}, fleet.SourceCredentials{AccessKey: "a", SecretKey: "b"})
	for _, name := range []string{"web", "git", "bucket"} {
		st := w.status(name, fleet.SourceFailed)
		if !strings.Contains(st.Message, "127.0.0.1 is a loopback address") || !strings.Contains(st.Message, "network.allowedEgress") {
			t.Errorf("%s: %s", name, st.Message)
		}
	}
	w.allow("127.0.0.0/8")
	w.status("web", fleet.SourceInSync) // at once, not in an hour
}

func TestTheCatalogDownloadsNothingFromAPrivateNetwork(t *testing.T) {
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
