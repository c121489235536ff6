package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// ownVersion is that of the command line in these tests.
const ownVersion = "v1.2.0"

// versioned builds the command line with a version, like a release.
func versioned(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "orrery")
	build := exec.CommandContext(cluster.Bounded(t), "go", "build", "-ldflags", "-X github.com/orreryhq/orrery/cli/internal/app.version="+ownVersion, "-o", program, "./cli/cmd/orrery")
	build.Dir = cluster.Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// otherRelease is the URL of a gateway of another release: the answers of the cluster's gateway with that
// version, and with a field that this release does not know. It lacks a route.
func otherRelease(t *testing.T, c cluster.Cluster, version, lacks string) string {
	t.Helper()
	target, err := url.Parse(c.API())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ModifyResponse = func(r *http.Response) error {
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
			return nil
		}
		var object map[string]json.RawMessage
		body, err := io.ReadAll(r.Body)
		if err == nil && json.Unmarshal(body, &object) == nil {
			if _, ok := object["version"]; ok {
				object["version"], _ = json.Marshal(version)
			}
			object["ofAnotherRelease"] = json.RawMessage(`{"deep":[1,2]}`)
			body, err = json.Marshal(object)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Del("Content-Length")
		return err
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, lacks) {
			r.URL.Path = "/api/v1/none/of/this/release"
		}
		r.Header.Del("Accept-Encoding")
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func testVersions(t *testing.T, c cluster.Cluster) {
	program := versioned(t)
	for version, relation := range map[string]string{"v1.1.9": "older", "v2.0.0": "newer"} {
		t.Run(relation, func(t *testing.T) {
			t.Parallel()
			u := newUser(t)
			u.program = program
			api := otherRelease(t, c, version, "/api/v1/problems")
			u.ok("login", api, "--username", "admin", "--password-file", c.PasswordFile(), "--name", "test")
			r := u.run("", "version")
			if want := "the server is " + relation + " than this program"; r.code != 0 || !strings.Contains(r.stderr, want) || !strings.Contains(r.stdout, "client "+ownVersion+"\nserver "+version) {
				t.Errorf("version: exit code %d, want %q\n%s%s", r.code, want, r.stdout, r.stderr)
			}
			if r := u.run("", "doctor", "-o", "json"); !strings.Contains(r.stdout, "this program is version "+ownVersion+" and "+api+" is "+version) {
				t.Errorf("doctor prints\n%s%s", r.stdout, r.stderr)
			}
			name := "future-" + relation
			u.given(group(name, 1), "apply", "--wait", "-f", "-")
			u.given(strings.Replace(group(name, 1), "maxInstances: 5", "maxInstances: 6", 1), "apply", "-f", "-")
			for _, args := range [][]string{{"get", "group", name, "-o", "json"}, {"get", "instance", name + "-1", "-o", "json"}, {"describe", "group", name}, {"get", "group", name, "-o", "yaml"}} {
				if got := u.ok(args...); !strings.Contains(got, "ofAnotherRelease") || !strings.Contains(got, "deep") {
					t.Errorf("%s leaves out a field that it does not know:\n%s", strings.Join(args, " "), got)
				}
			}
			if got := u.ok("get", "instances", "--group", name, "-o", "name"); got != name+"-1\n" {
				t.Errorf("instances %q", got)
			}
			u.refused(4, "the server is of another release than this program: orrery version shows both", "problems")
		})
	}
}
