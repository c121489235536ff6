package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestShutdownRefusesOtherNode(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		ends       []string
	}{
		{"its own", `{"node":"node-1","reason":"the host is replaced"}`, http.StatusNoContent, []string{"the host is replaced"}},
		{"another's", `{"node":"node-2"}`, http.StatusConflict, nil},
		{"nobody's", `{}`, http.StatusConflict, nil},
		{"too long reason", `{"node":"node-1","reason":"` + strings.Repeat("x", maxReason+1) + `"}`, http.StatusUnprocessableEntity, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ended []string
			handler := shutdown("node-1", func(reason string) { ended = append(ended, reason) })
			got := httptest.NewRecorder()
			handler.ServeHTTP(got, httptest.NewRequest(http.MethodPost, "/v1/shutdown", strings.NewReader(c.body)))
			if got.Code != c.status || !slices.Equal(ended, c.ends) {
				t.Errorf("%d %s, ended for %q; want %d and %q", got.Code, got.Body, ended, c.status, c.ends)
			}
		})
	}
}
