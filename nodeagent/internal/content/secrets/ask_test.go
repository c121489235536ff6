package secrets_test

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
)

// answers is a gateway.
type answers struct {
	values map[string]string // by reference
	err    error
	asked  map[string]string
}

func (a *answers) ask(_ context.Context, _ fleet.InstanceID, refs map[string]string) (map[string]string, error) {
	a.asked = maps.Clone(refs)
	if a.err != nil {
		return nil, a.err
	}
	out := map[string]string{}
	for variable, ref := range refs {
		out[variable] = a.values[ref]
	}
	return out, nil
}

func TestAnAgentWithoutTheClusterSecretAsksAGateway(t *testing.T) {
	dir := t.TempDir()
	gateway := &answers{values: map[string]string{"secret:db": "recognisable", "sealed:eA": "also recognisable"}}
	agent := func() *secrets.Resolver {
		t.Helper()
		r, err := secrets.New(secrets.Config{
			Ask: gateway.ask, StateDir: dir, EnvPrefix: "OWN_", Env: func(string) (string, bool) { return "own", true }, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	refs := map[string]string{"DB": "secret:db", "SEALED": "sealed:eA", "OWN": "env:OWN_X"}
	values := func() (map[string]string, error) { return agent().Values(t.Context(), "aaaaaa", "lobby", refs) }
	gateway.err = errs.New(errs.Unavailable, "no answer")
	if _, err := values(); !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "no copy") {
		t.Errorf("nothing was asked before: %v", err)
	}
	gateway.err = nil
	want := map[string]string{"DB": "recognisable", "SEALED": "also recognisable", "OWN": "own"}
	if got, err := values(); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if !maps.Equal(gateway.asked, map[string]string{"DB": "secret:db", "SEALED": "sealed:eA"}) {
		t.Errorf("it asks for %v", gateway.asked)
	}
	gateway.values["secret:db"] = "changed"
	gateway.err = errs.New(errs.Unavailable, "no answer")
	if got, err := values(); err != nil || !maps.Equal(got, want) {
		t.Errorf("without a gateway, by the next agent: %v, %v", got, err)
	}
	refs["DB"] = "secret:other"
	if _, err := values(); !errs.Is(err, errs.Unavailable) {
		t.Errorf("another reference without a gateway: %v", err)
	}
	refs["DB"] = "secret:db"
	for _, kind := range []errs.Kind{errs.NotFound, errs.Denied} {
		gateway.err = errs.New(kind, "DB: it says why")
		if _, err := values(); !errs.Is(err, kind) || !strings.Contains(err.Error(), "it says why") {
			t.Errorf("%v: %v", kind, err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v; want the key and a file", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil || strings.Contains(string(b), "recognisable") {
			t.Errorf("%s has a value, %v", f.Name(), err)
		}
		if fi, err := f.Info(); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", f.Name(), fi.Mode(), err)
		}
	}
}
