package apigateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/openapitest"
)

func TestADryRunIsNeverARealChange(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	c, err := contractOf()
	if err != nil {
		t.Fatal(err)
	}
	before := s.revision()
	for _, r := range s.routes() {
		name := r.Method + " " + documented(r.Path)
		if op := operationOf(c, r); op != nil && takesDryRun(c, op) != r.Dry {
			t.Errorf("%s: described with dryRun: %v, and it knows dry runs: %v", name, !r.Dry, r.Dry)
		}
		if r.Method == http.MethodGet || r.Dry {
			continue
		}
		path := filled(r.Path, func(string) string { return "lobby" })
		got, err := s.try(r.Method, path+"?dryRun=true", `{}`)
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case got.status == http.StatusBadRequest && strings.Contains(got.raw, "dryRun"):
		case got.status == http.StatusUnauthorized && r.Demand.Self(): // the caller is not an instance
		case got.status == http.StatusForbidden: // or lacks a permission
		default:
			t.Errorf("%s: %d: %s", name, got.status, got.raw)
		}
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("dry runs that are not offered moved the store: %v", keys)
	}
}

// takesDryRun reports whether an operation documents the parameter.
func takesDryRun(c *openapitest.Contract, op object) bool {
	list, _ := op["parameters"].([]any)
	for _, p := range list {
		if c.Resolved(p)["name"] == "dryRun" {
			return true
		}
	}
	return false
}
