package apigateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// published publishes a template with a unique digest.
func (s *site) published(ref string) string {
	s.t.Helper()
	r := content.ParseTemplateRef(ref)
	digest := "digest-of-" + r.Group + "-" + r.Name
	s.commit(store.Create(keys.TemplateHead(r), content.TemplateHead{TemplateRef: r, Digest: digest, SizeBytes: 24}))
	return digest
}

func TestTemplatesAreBroughtToNodesAndEachTellsWhatCameOfIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	fine, half := s.node("node-1", fleet.Resources{MemoryMiB: 1}), s.node("node-2", fleet.Resources{MemoryMiB: 1})
	s.node("node-3", fleet.Resources{MemoryMiB: 1})
	s.loseNode("node-3")
	a, b := s.published("g/a"), s.published("g/b")
	s.published("default/other")
	half.broken = []string{b}

	r := s.do("POST", "/api/v1/templates/sync", `{"pattern":"g/*"}`).want(200).
		is("message", "2 templates are on 1 of 3 nodes").is("status", "PARTIAL").is("pattern", "g/*").
		is("templates", []map[string]any{{"template": "g/a", "digest": a, "bytes": 24}, {"template": "g/b", "digest": b, "bytes": 24}})
	var told []string
	nodes, _ := r.field("nodes").([]any)
	for _, n := range nodes {
		m, _ := n.(map[string]any)
		told = append(told, fmt.Sprint(m["node"], m["status"], m["bytes"]))
	}
	if got := strings.Join(told, " "); got != "node-1OK24 node-2PARTIAL12 node-3OFFLINE0" {
		t.Errorf("nodes %s", got)
	}
	if !strings.Contains(r.raw, `"status":"FAILED","bytes":0,"error":"the disk is full"`) || !slices.Equal(fine.cache, []string{a, b}) {
		t.Errorf("%s, node-1 has %v", r.raw, fine.cache)
	}
	s.do("POST", "/api/v1/templates/sync", `{"pattern":"g/a","nodes":["node-1"]}`).want(200).is("message", "1 template is on 1 of 1 node")
	s.do("POST", "/api/v1/templates/sync", `{"pattern":"other","nodes":["node-1"]}`).want(200)
	s.do("POST", "/api/v1/templates/sync", `{"pattern":"none/*"}`).want(200).is("message", "no template matches none/*").is("templates", []any{}).is("nodes", []any{})
	s.do("POST", "/api/v1/templates/sync", `{"pattern":"*","nodes":["node-9"]}`).want(422).naming("nodes[0]")
	for _, bad := range []string{"", "/", "g/", "*/a", "g*/*", "g/a*", "../x", "a/b/c", "**"} {
		s.do("POST", "/api/v1/templates/sync", map[string]string{"pattern": bad}).want(422).naming("pattern")
		s.do("POST", "/api/templates/sync", map[string]string{"pattern": bad}).want(400).naming("pattern")
	}
	s.do("POST", "/api/templates/sync", `{"pattern":"*","targetNode":"node-1"}`).want(200).is("message", "3 templates are on 1 of 1 node").is("pattern", "*")
	s.do("POST", "/api/templates/sync", `{"pattern":"*","targetNode":"node-9"}`).want(404)
	s.do("POST", "/api/v1/templates/sync", `{"pattern":"g"}`).want(200).is("message", "no template matches default/g: the templates of the group g are g/*")
	s.do("POST", "/api/v1/templates/sync", `{"pattern":"nobody"}`).want(200).is("message", "no template matches default/nobody")
	s.do("POST", "/api/templates/sync", `{}`).want(400)
	fine.Close()
	s.do("POST", "/api/v1/templates/sync", `{"pattern":"g/a","nodes":["node-1"]}`).want(200).is("message", "1 template is on 0 of 1 node").is("status", "FAILED").naming("the agent of node node-1 does not answer now")

	viewer := s.user("vera", "VIEWER")
	viewer.do("POST", "/api/v1/templates/sync", `{"pattern":"*"}`).want(403)
	viewer.do("POST", "/api/templates/sync", `{"pattern":"*"}`).want(403)
}

func TestASyncBringsWhatTheGatewayHasYetToSee(t *testing.T) {
	t.Parallel()
	first := newSite(t)
	n := first.node("node-1", fleet.Resources{MemoryMiB: 1})
	first.published("g/a")
	s := newLagging(t, first.etcd)
	s.token = first.token
	s.stopView()
	key := keys.TemplateHead(content.ParseTemplateRef("g/a"))
	head, err := store.Get(t.Context(), s.store, key)
	if err != nil {
		t.Fatal(err)
	}
	head.Digest = "digest-2"
	first.commit(store.Replace(key, head, head.ModRev))
	asked := []string{
		"/api/v1/templates/sync", `{"pattern":"g/a"}`, "/api/templates/g/a/sync", "", "/api/v1/nodes/node-1/cache/warm", `{"templates":["g/a"]}`,
	}
	answers, reads := make(chan *reply, len(asked)/2), s.faults.Reads()
	for ask := range slices.Chunk(asked, 2) {
		go func() {
			r, err := s.try("POST", ask[0], ask[1])
			if err != nil {
				t.Error(err)
			}
			answers <- r
		}()
	}
	s.readAgain(reads, cap(answers), func() bool { return len(answers) > 0 })
	s.resume()
	for range cap(answers) {
		if r := <-answers; r != nil && !strings.Contains(r.raw, `{"template":"g/a","digest":"digest-2"`) {
			t.Errorf("%s: %s", r.what, r.raw)
		}
	}
	if n.mu.Lock(); !slices.Equal(n.cache, []string{"digest-2"}) {
		t.Errorf("the node has %v", n.cache)
	}
	n.mu.Unlock()
}

func TestNodeCacheIsListedAndWarmed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.node("node-1", fleet.Resources{MemoryMiB: 1})
	a, b, base := s.published("default/a"), s.published("g/b"), s.published("default/base")
	s.published("default/unused")
	s.group("lobby", map[string]any{"templates": []string{"a", "g/b"}})
	holds := func(want ...string) {
		t.Helper()
		slices.Sort(want)
		await.That(t, "the node has been warmed", func() string {
			n.mu.Lock()
			defer n.mu.Unlock()
			have := slices.Sorted(slices.Values(n.cache))
			return await.Unless(slices.Equal(have, want), "it has %v", have)
		})
	}
	s.do("POST", "/api/v1/nodes/node-1/cache/warm", `{"templates":["a"]}`).want(202).is("status", "WARMING").
		is("templates", []map[string]any{{"template": "default/a", "digest": a, "bytes": 24}})
	holds(a)
	s.do("POST", "/api/v1/nodes/node-1/cache/warm", nil).want(202)
	holds(a, b, base)
	r := s.do("GET", "/api/v1/nodes/node-1/cache", nil).want(200).is("totalSizeBytes", 3).is("limitBytes", 1<<30).is("jars", []any{}).is("bootstraps", []any{})
	templates, _ := r.field("templates").([]any)
	if m, _ := templates[0].(map[string]any); len(templates) != 3 || m["name"] != "a" || m["hash"] != a || m["complete"] != true || m["sizeBytes"] != 1.0 || r.field("receivedAt") == nil {
		t.Errorf("the cache is %s", r.raw)
	}
	s.do("POST", "/api/v1/nodes/node-1/cache/refresh", nil).want(202).is("status", "REQUESTED")
	s.do("POST", "/api/v1/nodes/node-1/cache/warm", `{"templates":["none"]}`).want(422).naming("templates[0]")
	s.do("POST", "/api/v1/nodes/node-1/cache/warm", `{"groups":["none"]}`).want(422).naming("groups[0]")
	viewer := s.user("vera", "VIEWER")
	viewer.do("GET", "/api/v1/nodes/node-1/cache", nil).want(200)
	viewer.do("POST", "/api/v1/nodes/node-1/cache/refresh", nil).want(202)
	viewer.do("POST", "/api/v1/nodes/node-1/cache/warm", nil).want(403)
	s.loseNode("node-1")
	for _, node := range []string{"node-1", "none"} {
		s.do("GET", "/api/v1/nodes/"+node+"/cache", nil).want(404)
		s.do("POST", "/api/v1/nodes/"+node+"/cache/refresh", nil).want(404)
		s.do("POST", "/api/v1/nodes/"+node+"/cache/warm", nil).want(404)
	}
}

func TestOneTemplateIsSyncedInTheOlderDialect(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 1})
	s.published("g/a")
	s.published("g/b")
	const one = "/api/templates/g/a/sync"
	s.do("POST", one, `{"storage":"local"}`).want(200).is("group", "g").is("name", "a").is("storage", "local").
		is("message", "1 template is on 1 of 1 node").is("status", "OK").
		is("templates", []map[string]any{{"template": "g/a", "digest": "digest-of-g-a", "bytes": 24}})
	s.do("POST", "/api/templates/g/*/sync", nil).want(404)
	s.do("POST", one, nil).want(200).is("storage", "local")
	s.do("POST", one+"?dryRun=true", nil).want(200).is("status", "DRY_RUN")
	s.do("POST", "/api/templates/g/none/sync", nil).want(404)
	for _, unknown := range []string{"s3", "..", "a b"} {
		s.do("POST", one, map[string]string{"storage": unknown}).want(400).naming("storage")
	}
	s.do("POST", one, `{"storage":1}`).want(400)
	s.do("PUT", "/api/v1/template-sources/repo", repository).want(201)
	before := s.source("repo").Asked
	s.do("POST", one+"?dryRun=true", `{"storage":"repo"}`).want(200)
	s.do("POST", one, `{"storage":"repo"}`).want(200).is("storage", "repo")
	if after := s.source("repo").Asked; after != before+1 {
		t.Errorf("the source was asked for %d times", after-before)
	}
	viewer := s.user("vera", "VIEWER")
	viewer.do("POST", one, nil).want(403)
}

func TestTheCacheOfANodeNamesOldVersionsAndTheCatalogsArtifacts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.node("node-1", fleet.Resources{MemoryMiB: 1})
	at := time.Unix(1e9, 0).UTC()
	head, planned, old := s.published("g/a"), strings.Repeat("b", 64), strings.Repeat("c", 64)
	jar, gone := strings.Repeat("1", 64), strings.Repeat("2", 64)
	a := content.ParseTemplateRef("g/a")
	s.commit(
		store.Create(keys.TemplateVersion(a, old), content.TemplateVersion{TemplateRef: a, Digest: old}),
		store.Create(keys.Plan("p"), fleet.StoredPlan{Plan: fleet.Plan{
			Layers: []fleet.PlanLayer{{TemplateRef: content.ParseTemplateRef("b"), Digest: planned}}, Artifact: &content.Artifact{Platform: "OLD", Version: "1", SHA256: gone, Path: "old.jar"},
		}}),
	)
	s.do("POST", "/api/v1/catalog/paper/versions", map[string]any{"version": "1.21", "downloadUrl": "http://localhost/x", "sha256": jar, "category": "SERVER"}).want(201)
	n.mu.Lock()
	n.cache = []string{head, planned, old, strings.Repeat("d", 64)}
	n.jars = []client.CachedArtifact{{SHA256: jar, Bytes: 7, CachedAt: at, UsedAt: at}, {SHA256: gone, Bytes: 8, CachedAt: at, UsedAt: at}}
	n.mu.Unlock()
	r := s.do("GET", "/api/v1/nodes/node-1/cache", nil).want(200)
	templates, _ := r.field("templates").([]any)
	var names []string
	for _, one := range templates {
		m, _ := one.(map[string]any)
		names = append(names, fmt.Sprint(m["name"]))
	}
	if !slices.Equal(names, []string{"g/a", "b", "g/a", ""}) {
		t.Errorf("the versions are named %q", names)
	}
	r.is("jars", []any{
		map[string]any{"platform": "PAPER", "version": "1.21", "jarFile": "", "sizeBytes": 7, "sha256": jar, "cachedAt": at, "lastUsed": at},
		map[string]any{"platform": "OLD", "version": "1", "jarFile": "old.jar", "sizeBytes": 8, "sha256": gone, "cachedAt": at, "lastUsed": at},
	})
}
