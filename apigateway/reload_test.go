package apigateway

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestAReloadWaitsForEverySourceAndTellsWhatIsOther(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/node/reload", nil).want(200).is("templates", []string{}).is("configurations", []string{}).is("problems", []string{}).naming("no source")
	s.do("PUT", "/api/v1/template-sources/repo", declaring).want(201)
	s.do("PUT", "/api/v1/template-sources/resting", strings.Replace(repository, `{"kind"`, `{"paused":true,"kind"`, 1)).want(201)
	s.commit(
		store.Create(keys.TemplateDirectory("a"), content.TemplateDirectory{Replica: "a", ID: "x", State: content.SourceInSync}),
		store.Create(keys.TemplateDirectory("dead"), content.TemplateDirectory{Replica: "dead", ID: "x", State: content.SourceInSync}),
		store.Create(keys.Session("templatesvc", "a"), cluster.Session{Service: "templatesvc", Replica: "a"}),
	)
	var both sync.WaitGroup
	answers := make(chan *reply, 2)
	both.Go(func() { answers <- s.do("POST", "/api/node/reload", nil) })
	await.That(t, "all are asked", func() string {
		dir, err := store.Get(t.Context(), s.store, keys.DirectorySync())
		return await.Unless(err == nil && dir.Asked == 1 && s.source("repo").Asked == 1, "%+v %v %d", dir, err, s.source("repo").Asked)
	})
	s.template("games/lobby")
	s.declare("repo", "lobby", `{"command":"run"}`)
	s.looked("repo", content.SourceStatus{State: content.SourceFailed, Message: "the branch is gone"})
	select {
	case early := <-answers:
		t.Fatalf("answered before the directory was looked at: %s", early.raw)
	default:
	}
	dir, err := store.Get(t.Context(), s.store, keys.TemplateDirectory("a"))
	if err != nil {
		t.Fatal(err)
	}
	dir.At = time.Now()
	s.commit(store.Replace(keys.TemplateDirectory("a"), dir, dir.ModRev))
	both.Wait()
	r := (<-answers).want(200)
	r.is("templates", []string{"games/lobby"}).is("configurations", []string{"lobby"}).naming("the branch is gone")
	if s.source("resting").Asked != 0 {
		t.Error("a source that is paused was asked")
	}
	s.user("otto", "OPERATOR").do("POST", "/api/node/reload", nil).want(403)
}

func TestAGatewayTellsOfItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.NodeID, c.ClusterName, c.Version = "node-1", "test", "1.2.3" })
	bare := s.do("GET", "/api/node", nil).want(200).is("id", "node-1").is("clusterName", "test").is("version", "1.2.3").is("master", true).is("port", 0)
	for _, number := range []string{"apiPort", "uptimeMs", "system.availableProcessors", "system.systemLoadAverage", "system.freeMemory", "system.totalMemory", "system.maxMemory", "systemStats.maxMemory", "uptime"} {
		if _, ok := bare.field(number).(float64); !ok {
			t.Errorf("%s is no number: %v", number, bare.field(number))
		}
	}
	s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 400})
	n, _ := s.view.Snapshot().Nodes.Get("node-1")
	named := *n
	named.DataUUID, named.Variables = "uuid-1", map[string]string{"region": "eu", "DB_PASSWORD": "hunter2"}
	s.commit(store.Replace(keys.Node("node-1"), named, n.ModRev))
	s.do("GET", "/api/cluster/nodes/uuid-1", nil).want(200).is("id", "node-1").is("role", "master")
	s.do("PUT", "/api/v1/template-sources/repo", repository).want(201)
	r := s.do("GET", "/api/node/config", nil).want(200).is("nodeId", "node-1").is("isMasterNode", true).is("maxRamMB", 4096).is("maxCpu", 400).
		is("nodeSpecificVariables", map[string]string{"region": "eu", "DB_PASSWORD": "***"}).naming(`"https://host/r.git"`)
	for _, field := range []string{"address", "port", "apiPort", "masterAddress", "masterPort", "masterApiPort", "debug", "updateSources", "bindAddress", "publicAddress", "clusterName"} {
		if r.field(field) == nil {
			t.Errorf("there is no %s", field)
		}
	}
	if strings.Contains(r.raw, "very-secret") || strings.Contains(r.raw, secret) {
		t.Error("a secret is shown")
	}
	s.user("otto", "OPERATOR").do("GET", "/api/node/config", nil).want(403)
}

func TestMetricsAreForWhoMaySeeThemUnlessTheyArePublic(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.as("").do("GET", "/api/metrics", nil).want(401)
	r := s.user("vera", "VIEWER").do("GET", "/api/metrics", nil).want(200).naming("orrery_apigateway_http_requests_total")
	if kind := r.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("of type %s", kind)
	}
	open := newSiteOn(t, s.etcd, func(c *Config) { c.MetricsPublic = true })
	if r := open.do("GET", "/api/metrics", nil); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.raw)
	}
}

func TestAReloadReadsADirectoryOfConfigurations(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.configurations, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reload := func() *reply { return s.do("POST", "/api/node/reload", nil).want(200) }
	write("lobby.json", `{"name":"lobby","ramMB":512,"command":"run","minimumServiceCount":0,"unheardOf":1}`)
	write("arena.json", `{"shutdownGraceSeconds":5,"minimumServiceCount":0}`)
	s.do("PUT", "/api/v1/template-sources/here", `{"kind":"configurations"}`).want(422).naming("declares")
	s.do("PUT", "/api/v1/template-sources/here", `{"kind":"configurations","declares":true}`).want(201).is("kind", "configurations").is("url", "")
	reload().is("problems", []string{})
	s.do("GET", "/api/configurations/lobby", nil).want(200).is("ramMB", 512).is("command", "run")
	s.do("GET", "/api/v1/groups/arena", nil).want(200).is("shutdownGraceSeconds", 5)
	s.do("GET", "/api/v1/gitops", nil).want(200).is("0.source", "here").is("0.items.0.file", "arena.json").is("0.items.0.state", "IN_SYNC")

	write("lobby.json", `{"name":"lobby","ramMB":256}`)
	reload().is("configurations", []string{"lobby"}).is("problems", []string{})
	s.do("GET", "/api/configurations/lobby", nil).want(200).is("ramMB", 256).is("command", "").is("minimumServiceCount", 1)

	write("lobby.json", `{"name":"lobby","ramMB":`)
	reload().naming("source here is FAILED: lobby.json is not a JSON object")
	write("lobby.json", `{"name":"lobby","ramMB":-1}`)
	reload().naming("lobby.json: ramMB must not be negative")
	s.do("GET", "/api/configurations/lobby", nil).want(200).is("ramMB", 256)

	if err := os.Remove(filepath.Join(s.configurations, "lobby.json")); err != nil {
		t.Fatal(err)
	}
	reload().is("configurations", []string{"lobby"}).is("problems", []string{})
	s.do("GET", "/api/configurations/lobby", nil).want(404)
	s.do("GET", "/api/configurations/arena", nil).want(200)
	if err := os.Rename(s.configurations, s.configurations+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.configurations, 0o700); err != nil {
		t.Fatal(err)
	}
	reload().naming("source here is FAILED: the directory holds no file") // another directory, like an unmounted mount point
	s.do("GET", "/api/configurations/arena", nil).want(200)
}

func TestAReloadShowsEditsAndRemovalsOfConfigurationsAtOnce(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	file := func(i int) string { return filepath.Join(s.configurations, fmt.Sprintf("c%d.json", i)) }
	write := func(i, ram int) {
		t.Helper()
		if err := os.WriteFile(file(i), fmt.Appendf(nil, `{"minimumServiceCount":0,"ramMB":%d}`, ram), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		write(i, 100)
	}
	reload := func() *reply { return s.do("POST", "/api/node/reload", nil).want(200).is("problems", []string{}) }
	s.do("PUT", "/api/v1/template-sources/here", `{"kind":"configurations","declares":true,"intervalSeconds":3600}`).want(201)
	reload()
	s.do("GET", "/api/configurations/c0", nil).want(200).is("ramMB", 100)
	write(0, 200)
	reload().is("configurations", []string{"c0"})
	s.do("GET", "/api/configurations/c0", nil).want(200).is("ramMB", 200)
	for _, gone := range [][]int{{1}, {2, 3, 4, 5, 6}, {7, 0}} {
		for _, i := range gone {
			if err := os.Remove(file(i)); err != nil {
				t.Fatal(err)
			}
		}
		reload()
		for _, i := range gone {
			s.do("GET", fmt.Sprintf("/api/configurations/c%d", i), nil).want(404)
		}
	}
	reload()
}

func TestAReloadWaitsForWhatIsTakenOverFromASourceThatHasGone(t *testing.T) {
	t.Parallel()
	s := newShelf(newSite(t))
	for i := range 30 {
		if err := os.WriteFile(filepath.Join(s.configurations, fmt.Sprintf("c%d.json", i)), []byte(`{"minimumServiceCount":0}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const source = "/api/v1/template-sources/"
	reload := func() *reply { return s.do("POST", "/api/node/reload", nil).want(200) }
	s.do("PUT", source+"a", `{"kind":"configurations","declares":true}`).want(201)
	reload().is("problems", []string{})
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "b"}} {
		s.do("PUT", source+names[1], `{"kind":"configurations","declares":true}`).want(201)
		reload().naming("is declared by source " + names[0] + " too")
		s.do("DELETE", source+names[0], nil).want(204)
		reload().is("problems", []string{})
	}
}
