package main

import (
	"bytes"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// rewrite replaces the expected files: go test ./sdkgen -rewrite.
var rewrite = flag.Bool("rewrite", false, "write testdata/want")

func TestGenerateWritesTheExpectedFiles(t *testing.T) {
	files, err := generate(os.DirFS("testdata/api"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(files)), []string{"api_moons.go", "api_surface.go"}; !slices.Equal(got, want) {
		t.Errorf("generate wrote %v, want %v", got, want)
	}
	for name, got := range files {
		golden := filepath.Join("testdata", "want", name+".golden")
		if *rewrite {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs from %s:\n%s", name, golden, got)
		}
	}
}

func TestGenerateRefusesSourcesThatDoNotFit(t *testing.T) {
	const get = `{"paths": {"/api/v1/things": {"get": {"operationId": "getThing", "summary": "Get a thing", "responses": %}}}}`
	for name, c := range map[string]struct{ responses, schemas, want string }{
		"no success":       {`{}`, `{}`, "no successful response"},
		"unknown schema":   {`{"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}}`, `{}`, "schema Thing does not exist"},
		"unknown response": {`{"200": {"$ref": "#/components/responses/Thing"}}`, `{}`, "responses/Thing does not exist"},
		"one name, two types": {
			`{"200": {"content": {"application/json": {"schema": {"type": "object", "properties": {"inner": {"$ref": "#/components/schemas/GetThingResult"}}}}}}}`,
			`{"GetThingResult": {"type": "object", "properties": {"a": {"type": "string"}}}}`, "type GetThingResult is needed twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := generate(fstest.MapFS{
				"openapi.json":        {Data: []byte(`{}`)},
				"paths/things.json":   {Data: []byte(strings.Replace(get, "%", c.responses, 1))},
				"schemas/things.json": {Data: []byte(c.schemas)},
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("generate fails with %v, want %q", err, c.want)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{"api_a.go": []byte("a"), "api_b.go": []byte("b")}
	for name, text := range map[string]string{"api_a.go": "a", "api_b.go": "old", "api_gone.go": "gone", "client.go": "by hand"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stale, err := settle(dir, files, true)
	if slices.Sort(stale); err != nil || !slices.Equal(stale, []string{"api_b.go", "api_gone.go"}) {
		t.Errorf("settle with check = %v, %v; want api_b.go and api_gone.go", stale, err)
	}
	if stale, err := settle(dir, files, false); err != nil || len(stale) > 0 {
		t.Fatalf("settle = %v, %v", stale, err)
	}
	if stale, err := settle(dir, files, true); err != nil || len(stale) > 0 {
		t.Errorf("after settle, check finds %v, %v", stale, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "client.go")); err != nil {
		t.Errorf("a file that is not generated is gone: %v", err)
	}
}

func TestRunNamesTheStaleFiles(t *testing.T) {
	root := t.TempDir()
	source := filepath.Join(root, filepath.FromSlash(sourceDir))
	if err := os.CopyFS(source, os.DirFS("testdata/api")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "sdk"), 0o755); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if code := run([]string{"-root", root, "-check"}, &out, io.Discard); code != 1 || !strings.Contains(out.String(), "sdk/api_moons.go is out of date: run make references") {
		t.Errorf("check of a missing file: code %d, %q", code, out.String())
	}
	if code := run([]string{"-root", root}, &out, io.Discard); code != 0 {
		t.Errorf("writing: code %d, want 0", code)
	}
	if code := run([]string{"-root", root, "-check"}, &out, io.Discard); code != 0 {
		t.Errorf("check of new files: code %d, want 0", code)
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"memoryMb": "MemoryMB", "nodeId": "NodeID", "cpu": "CPU", "tps1m": "TPS1m", "If-Match": "IfMatch", "gRPCAddr": "GRPCAddr",
		"createApiToken": "CreateAPIToken", "ids": "IDs", "template-source": "TemplateSource", "jvmArgs": "JVMArgs", "sha256": "SHA256",
	} {
		if got := goName(in); got != want {
			t.Errorf("goName(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"Policies": "Policy", "Addresses": "Address", "Access": "Access", "Nodes": "Node", "Waiting": "Waiting"} {
		if got := singular(in); got != want {
			t.Errorf("singular(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSentence(t *testing.T) {
	for summary, want := range map[string]string{
		"Get a group":                        "Op gets a group.",
		"Search in files":                    "Op searches in files.",
		"Verify":                             "Op verifies.",
		"Try other rules":                    "Op tries other rules.",
		"Display a page":                     "Op displays a page.",
		"Add or remove an origin":            "Op adds or removes an origin.",
		"Create and activate a new version":  "Op creates and activates a new version.",
		"Delete a group and stop its things": "Op deletes a group and stops its things.",
		"One API token":                      "Op: one API token.",
		"Tokens to join":                     "Op: tokens to join.",
	} {
		if got := sentence("Op", summary); got != want {
			t.Errorf("sentence(%q) = %q, want %q", summary, got, want)
		}
	}
}
