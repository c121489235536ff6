package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
)

func TestARouteThatDemandsNothingIsForNobody(t *testing.T) {
	if (Demand{}).Open() || (Demand{}).Self() || (Demand{}).caller != nobody {
		t.Error("it lets somebody in")
	}
	for _, d := range []Demand{Anyone, Ticketed, Own, Needs(auth.GroupsView), NeedsOrSelf(auth.GroupsView)} {
		if d.Open() {
			t.Errorf("%+v is open to everybody", d)
		}
	}
	if !Public.Open() || !Login.Open() || !Own.Self() || !NeedsOrSelf(auth.GroupsView).Self() {
		t.Error("who may come does not")
	}
}

func TestABodyOfAnotherTypeIsRefusedUnlessTheRouteReadsAll(t *testing.T) {
	served := func(c *gin.Context) { c.Status(http.StatusNoContent) }
	frame := bare((*Server).limitBody)
	frame.Add(Post("/json", Public, served), Post("/raw", Public, served).Reads(Any))
	for _, tc := range []struct {
		path, contentType, body string
		want                    int
	}{
		{"/json", "", "{}", 204},
		{"/json", "application/json", "{}", 204},
		{"/json", "application/json; charset=utf-8", "{}", 204},
		{"/json", "application/merge-patch+json", "{}", 204},
		{"/json", "application/problem+json", "{}", 204},
		{"/json", "application/x-www-form-urlencoded", "{}", 204},
		{"/json", "text/plain", "", 204},
		{"/json", "text/plain", "{}", 415},
		{"/json", "application/xml", "<a/>", 415},
		{"/json", "multipart/form-data; boundary=x", "--x--", 415},
		{"/json", "text/evil+json", "{}", 415},
		{"/json", "nonsense;;", "{}", 415},
		{"/raw", "application/xml", "<a/>", 204},
	} {
		r := httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(tc.body))
		r.Header.Set("Content-Type", tc.contentType)
		w := httptest.NewRecorder()
		if frame.ServeHTTP(w, r); w.Code != tc.want {
			t.Errorf("%s with %q: %d %s", tc.path, tc.contentType, w.Code, w.Body)
		}
	}
}

func TestRoutesAreListedAsTheyWereAdded(t *testing.T) {
	frame := bare((*Server).limitBody)
	frame.Add(Under("/b", Get("", Anyone, unserved), Get("/:id", Needs(auth.NodesView), unserved))...)
	frame.Add(Delete("/a", Public, unserved))
	var got []string
	for _, r := range frame.Routes() {
		got = append(got, r.Method+" "+r.Path)
	}
	if strings.Join(got, ", ") != "DELETE /a, GET /b, GET /b/:id" {
		t.Error(got)
	}
}

func unserved(*gin.Context) {}
