package reading_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/verbs/reading"
)

func TestGetNamesWhatCannotBeFound(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/groups":
			fmt.Fprint(w, `{"data":[{"name":"lobby"}],"total":1}`)
		case "/api/v1/nodes":
			fmt.Fprint(w, `{"data":[{"id":"node-1"}],"total":1}`)
		case "/api/v1/instances":
			fmt.Fprint(w, `{"data":[],"total":0}`)
		default:
			fmt.Fprint(w, `{"id":"lobby-1"}`)
		}
	}))
	defer server.Close()
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"get instances --group lobby", exit.OK, "no instances found"},
		{"get instances --group lobbi", exit.NotFound, "did you mean lobby?"},
		{"get instances --node node-2", exit.NotFound, "did you mean node-1?"},
		{"get instances lobby-1 --filter state=FAILED", exit.Usage, "names and --filter cannot be combined"},
		{"get instances lobby-1 --node node-2", exit.Usage, "names and --node cannot be combined"},
		{"get instances lobby-1", exit.OK, ""},
	} {
		got := clitest.Run(t, reading.Commands, server.URL, "", strings.Fields(c.args)...)
		if got.Code != c.code || !strings.Contains(got.Err, c.says) {
			t.Errorf("%s: %s; want code %d and %q", c.args, got, c.code, c.says)
		}
	}
}

func TestDescribeShowsAViewOfAnObject(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/instances/lobby-1/composition":
			fmt.Fprint(w, `{"instance":"lobby-1","layers":[{"name":"base"},{"name":"lobby"}]}`)
		case "/api/v1/groups/lobby/resolved":
			fmt.Fprint(w, `{"group":{"name":"lobby","command":"exec cat"},"sources":{"command":"parent"}}`)
		case "/api/v1/groups":
			fmt.Fprint(w, `{"data":[{"name":"lobby"}],"total":1}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"code":"NOT_FOUND","message":"it does not exist","status":404}}`)
		}
	}))
	defer server.Close()
	for _, c := range []struct {
		args string
		code int
		out  string
		says string
	}{
		{"describe instance lobby-1 --composition", exit.OK, "instance: lobby-1\nlayers:\n  - name: base\n  - name: lobby\n", ""},
		{"describe instance lobby-1 --composition -o jsonpath={.layers[*].name}", exit.OK, "base\nlobby\n", ""},
		{"describe group lobby --resolved", exit.OK, "group:\n  name:    lobby\n  command: exec cat\nsources:\n  command: parent\n", ""},
		{"describe group loby --resolved", exit.NotFound, "", "did you mean lobby?"},
		{"describe group lobby --composition", exit.Usage, "", "--composition is for instances, not for groups"},
		{"describe group lobby --composition --resolved", exit.Usage, "", "describe --help"},
	} {
		got := clitest.Run(t, reading.Commands, server.URL, "", strings.Fields(c.args)...)
		if got.Code != c.code || got.Out != c.out || !strings.Contains(got.Err, c.says) {
			t.Errorf("%s: %s; want code %d, %q and %q", c.args, got, c.code, c.out, c.says)
		}
	}
}

func TestCompletionOffersTheNamesThatBeginLikeTheWord(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"name":"arena"},{"name":"lobby"},{"name":"lobby-eu"}],"total":3}`)
	}))
	defer server.Close()
	for word, want := range map[string]string{"lob": "lobby\nlobby-eu\n:4\n", "x": ":4\n", "": "arena\nlobby\nlobby-eu\n:4\n"} {
		got := clitest.Run(t, reading.Commands, server.URL, "", "__complete", "get", "group", word)
		if got.Code != exit.OK || got.Out != want {
			t.Errorf("%q: %s, want %q", word, got, want)
		}
	}
}
