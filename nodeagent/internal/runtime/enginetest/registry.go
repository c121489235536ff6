package enginetest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Registry serves a registry that answers requests for images with an error status until the test
// ends. It returns the registry's host and port.
func Registry(t testing.TB, status int) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
		if r.URL.Path == "/v2/" { // the engine checks whether this is a registry
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":{"Tag":"9"}}]}`))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
