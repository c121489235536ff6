package apigateway

import (
	"reflect"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestMaintenanceOfAllGroupsIsSetAndShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = "/api/v1/maintenance"
	first := s.do("GET", path, nil).want(200).is("enabled", false).is("message", "").is("bypass", []any{}).is("updatedBy", nil).is("updatedAt", nil)
	if etag := first.header.Get("ETag"); etag != "" {
		t.Errorf("an ETag %q before there is a record", etag)
	}
	rev := s.revision()
	s.do("PUT", path+"?dryRun=true", `{"enabled":true,"message":"soon"}`).want(200).is("dryRun", true).is("action", "update").naming(`"field":"message"`)
	s.do("PUT", path+"?dryRun=true", `{"enabled":false}`).want(200).is("action", "none")
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("a dry run wrote %v", moved)
	}
	s.do("PUT", path, `{"enabled":true,"message":"soon","bypass":["ann"]}`).want(200).is("enabled", true).is("bypass", []any{"ann"}).is("updatedBy", "admin")
	again := s.do("PUT", path, `{"message":"later"}`).want(200).is("enabled", true).is("message", "later").is("bypass", []any{"ann"})
	s.do("PUT", path, `{"enabled":false}`, "If-Match", `"1"`).want(412)
	s.do("PUT", path, `{"enabled":false}`, "If-Match", again.header.Get("ETag")).want(200).is("enabled", false)
	s.do("GET", "/api/v1/audit?action=maintenance.update", nil).want(200).is("total", 3)
	s.user("viewer", "VIEWER").do("PUT", path, `{"enabled":true}`).want(403)
}

func TestWrongMaintenanceIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const path = "/api/v1/maintenance"
	rev := s.revision()
	s.do("PUT", path, `{"enabled":"yes"}`).want(400).naming("enabled")
	s.do("PUT", path, `{"active":true}`).want(400).naming("active")
	s.do("PUT", path, `{"message":"\u001b"}`).want(422).naming("message")
	s.do("PUT", path, `{"bypass":["a\nb"]}`).want(422).naming("bypass[0]")
	if moved := s.moved(rev); len(moved) != 0 {
		t.Errorf("refused requests wrote %v", moved)
	}
}

func TestServersAndProxiesSeeTheMaintenanceInForce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	who := s.inside("lobby", "node-1")
	see := func(on bool, message string, bypass ...any) {
		t.Helper()
		g := who.list("/api/plugin/groups")[0]
		got := []any{g["isMaintenance"], g["maintenanceMessage"], g["maintenanceBypass"]}
		if want := []any{on, message, append([]any{}, bypass...)}; !reflect.DeepEqual(got, want) {
			t.Errorf("servers see %v, want %v", got, want)
		}
	}
	see(false, "")
	s.do("PUT", "/api/v1/maintenance", `{"enabled":true,"message":"all","bypass":["ann","bob"]}`).want(200)
	see(true, "all", "ann", "bob")
	s.do("PATCH", "/api/v1/groups/lobby", `{"maintenance":true,"maintenanceMessage":"only here","maintenanceBypass":["bob","eve"]}`).want(200)
	see(true, "only here", "bob")
	s.do("PUT", "/api/v1/maintenance", `{"enabled":false}`).want(200)
	see(true, "only here", "bob", "eve")
}

func TestADryRunOfAGroupKnowsTheMaintenanceOfAll(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.do("PUT", "/api/v1/maintenance", `{"enabled":true}`).want(200)
	s.do("PATCH", "/api/v1/groups/lobby?dryRun=true", `{"minInstances":3}`).want(200).is("placements", []any{}).naming("3 instances would start after the maintenance")
}
