package apigateway

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/server"
)

func TestHeadMatchesGetWithoutBody(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	for _, r := range s.routes() {
		if r.Method != http.MethodGet {
			continue
		}
		path := strings.ReplaceAll(filled(r.Path, func(string) string { return "lobby" }), "*", "")
		head, err := s.try("HEAD", path, nil, "Accept-Encoding", "identity")
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if reflect.DeepEqual(r.Demand, server.Ticketed) {
			if head.status != 405 || !strings.Contains(head.header.Get("Allow"), "GET") {
				t.Errorf("%s: %d, allowed %q", head.what, head.status, head.header.Get("Allow"))
			}
			continue
		}
		get, err := s.try("GET", path, nil, "Accept-Encoding", "identity")
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if head.status != get.status || head.raw != "" {
			t.Errorf("%s: %d with %q, GET is %d", head.what, head.status, head.raw, get.status)
		}
		for _, name := range []string{"Content-Type", "ETag", "X-Total-Count", "Cache-Control"} {
			if head.header.Get(name) != get.header.Get(name) {
				t.Errorf("%s: %s is %q, of GET %q", head.what, name, head.header.Get(name), get.header.Get(name))
			}
		}
	}
}

func TestHeadDoesNotReadWhatCanBeReadOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	link := s.do("POST", "/api/v1/system/logs/share", `{"burnAfterRead":true}`).want(201).field("url")
	text, _ := link.(string)
	_, id, found := strings.Cut(text, "/s/")
	if !found {
		t.Fatalf("no link: %v", link)
	}
	for _, path := range []string{"/s/" + id + "/raw", "/s/" + id + "?read=1"} {
		if r, err := s.as("").try("HEAD", path, nil); err != nil || r.status != 200 {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
	}
	s.as("").do("GET", "/s/"+id+"/raw", nil).want(200)
}

func TestA405NamesTheMethod(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for method, name := range map[string]string{"TRACE": "TRACE", "get": "get", "FOO": "FOO", strings.Repeat("X", 100): "XXX", "!": "this method"} {
		r, err := s.try(method, "/api/v1/groups", nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.want(405).naming("does not take " + name); len(r.raw) > 200 {
			t.Errorf("a long method is repeated: %s", r.raw)
		}
	}
}
