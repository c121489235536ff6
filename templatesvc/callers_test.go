package templatesvc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc"
)

func TestEachServiceMayMakeOnlyItsOwnCalls(t *testing.T) {
	t.Parallel()
	w, authority := newWorld(t), trusttest.New(t)
	self := pki.Identity{Service: pki.Templates, Name: "a"}
	s, _ := w.startWith(templatesvc.Config{BlobDir: w.blobs, Replica: "a", Peers: authority.Peers(self)})
	if !strings.HasPrefix(s.URL(), "https://") {
		t.Errorf("its URL is %s", s.URL())
	}
	calls := map[string]wire.Request{
		"read":      {Method: http.MethodGet, URL: "/v1/manifests/" + strings.Repeat("0", 64)},
		"replicate": {Method: http.MethodPost, URL: "/v1/replicate?digest=" + strings.Repeat("0", 64)},
		"held":      {Method: http.MethodGet, URL: "/v1/held/blobs/" + strings.Repeat("0", 64)},
		"collect":   {Method: http.MethodPost, URL: "/v1/collect"},
		"pin":       {Method: http.MethodPost, URL: "/v1/artifacts", Body: map[string]string{"url": "x"}},
		"browse":    {Method: http.MethodGet, URL: "/v1/trees/" + strings.Repeat("0", 64)},
		"edit":      {Method: http.MethodPost, URL: "/v1/templates/g/n/edits", Body: map[string]string{}},
		"delete":    {Method: http.MethodDelete, URL: "/v1/templates/g/n"},
	}
	for _, c := range []struct {
		caller pki.Identity
		may    string
	}{
		{pki.Identity{Service: pki.Gateway}, "read collect pin browse edit delete"},
		{pki.Identity{Service: pki.Agent, Name: "n1"}, "read"},
		{pki.Identity{Service: pki.Templates, Name: "b"}, "read replicate held"},
		{pki.Identity{Service: pki.Scheduler}, ""},
	} {
		client := &http.Client{Transport: authority.Peers(c.caller).Transport(&http.Transport{}, self)}
		for name, call := range calls {
			call.URL = s.URL() + call.URL
			err := wire.Call(t.Context(), client, call, nil) // most fail, because nothing is stored
			if allowed := strings.Contains(c.may, name); errs.Is(err, errs.Denied) == allowed {
				t.Errorf("%s by %s: %v, want it allowed: %v", name, c.caller.Path(), err, allowed)
			}
		}
		client.CloseIdleConnections()
	}
}
