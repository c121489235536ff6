package apigateway

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestDiagnosticsAreCompleteAndRedacted(t *testing.T) {
	t.Parallel()
	var log *slog.Logger
	s := newSite(t, logging(0), func(c *Config) {
		c.APIURL, c.Version, log = "https://ops:hunter2@gateway.example", "1.2.3", c.Log
	})
	for n := range 250 {
		log.Warn(fmt.Sprintf("the database %d is gone", n), "password", "hunter2", "url", "https://ops:hunter2@db.example")
	}
	s.group("lobby", map[string]any{"platform": "paper", "maxInstances": 3, "env": map[string]string{"PASSWORD": "hunter2"}})
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.template("games/base")
	s.status(s.start("lobby"), "node-1", fleet.Status{State: fleet.Online})
	r := s.do("GET", "/api/v1/system/diagnostics", nil).want(200).is("controllerId", s.gateway.cfg.Replica).is("version", "1.2.3")
	r.is("readiness.status", "READY").is("overview.nodeCount", 1).is("settings.nodeCount", 1).is("redisKeyspace.groups", 1).is("redisKeyspace.secrets", 0)
	r.is("redactedConfig.apiUrl", "https://***@gateway.example").is("leases", []string{}).is("logBuffer.capacity", 2000)
	r.is("nodes.0.id", "node-1").is("groups.0.name", "lobby").is("groups.0.maxInstances", 3).is("groups.0.instances", 1).is("groups.0.platform", "PAPER")
	r.is("instances.0.id", "lobby-1").is("instances.0.state", "RUNNING").is("instances.1", nil).is("instanceStates.ONLINE", 1).is("templates.0.name", "games/base").is("templates.0.hash", "d1")
	r.is("etcd.endpoints.0.ok", true).is("etcd.endpoints.0.error", nil).is("etcd.endpoints.0.leader", true).is("etcd.endpoints.0.alarms", []string{}).is("etcd.endpoints.1", nil).is("etcd.compactedRevision", 0)
	if size, _ := r.field("etcd.endpoints.0.dbSizeBytes").(float64); size == 0 || r.field("etcd.historyRevisions") != r.field("etcd.endpoints.0.revision") {
		t.Errorf("etcd is %v", r.field("etcd"))
	}
	last := 0
	records, _ := r.field("logs").([]any)
	for n := range records {
		if r.field(fmt.Sprintf("logs.%d.message", n)) == "the database 249 is gone" {
			last = n
		}
	}
	r.is(fmt.Sprintf("logs.%d.mdc", last), map[string]string{"password": content.Hidden, "url": "https://***@db.example"})
	if len(records) != 200 {
		t.Errorf("%d records are told", len(records))
	}
	for _, secret := range []string{"hunter2", adminPassword, s.token} {
		if strings.Contains(r.raw, secret) {
			t.Errorf("%s is told", secret)
		}
	}
	shared := s.do("POST", "/api/v1/system/diagnostics/share", nil).want(201).is("burnAfterRead", false)
	id := shared.field("shareId").(string)
	for range 2 {
		text := s.as("").do("GET", "/s/"+id+"/raw", nil).want(200)
		if !strings.Contains(text.raw, `"controllerId"`) || !strings.Contains(text.raw, `"node-1"`) || strings.Contains(text.raw, "hunter2") {
			t.Error(text.raw)
		}
	}
	s.do("GET", "/api/v1/shares?kind=DIAGNOSTICS", nil).want(200).is("total", 1)
	s.commit(store.Create(keys.Role("SETTER"), account.Role{Name: "SETTER", Permissions: []account.Permission{auth.SystemSettings}}))
	s.user("sam", "SETTER").do("GET", "/api/v1/system/diagnostics", nil).want(200).is("logs", []string{})
	operator := s.user("otto", "OPERATOR")
	operator.do("GET", "/api/v1/system/diagnostics", nil).want(403)
	operator.do("POST", "/api/v1/system/diagnostics/share", nil).want(403)
}
