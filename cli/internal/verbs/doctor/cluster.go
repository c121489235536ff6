package doctor

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

func checkProblems(ctx context.Context, s *subject) (found findings) {
	page, err := s.client.ListProblems(ctx, nil)
	if found.unable(err, "groups.view") {
		return found
	}
	for _, p := range page.Data {
		result := warn
		if p.Severity == "critical" {
			result = fail
		}
		found.add(result, p.Fix, "%s %s: %s", p.Kind, p.Name, p.Message)
	}
	if len(page.Data) == 0 {
		found.add(ok, "", "nothing is wrong in what you may see")
	}
	return found
}

// diagnose reads the diagnostics once.
func (s *subject) diagnose(ctx context.Context) error {
	if s.diagnostics != nil {
		return nil
	}
	return s.client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: "/api/v1/system/diagnostics"}, &s.diagnostics)
}

const (
	// quotaWarn and quotaFail are how much of its quota the database of etcd may use.
	quotaWarn, quotaFail = 0.8, 0.95
	// defragmentFrom is the size of a database, in bytes, from which unused space in it matters.
	defragmentFrom = 256 << 20
	// slowEtcd is how long an answer of etcd may take, in milliseconds.
	slowEtcd = 500
	// inProcess is the name of the etcd in a standalone.
	inProcess = "in this process"
)

// checkEtcd reads the section etcd of the diagnostics, which older servers lack.
func checkEtcd(ctx context.Context, s *subject) (found findings) {
	if found.unable(s.diagnose(ctx), "system.settings") {
		return found
	}
	etcd := gjson.GetBytes(s.diagnostics, "etcd")
	if !etcd.Exists() {
		found.add(skip, "upgrade the server to check etcd with orrery; until then: etcdctl endpoint status", "this version of the server does not report on etcd")
		return found
	}
	for _, endpoint := range etcd.Get("endpoints").Array() {
		checkEndpoint(&found, endpoint)
	}
	checkCompaction(&found, etcd)
	return found
}

func checkEndpoint(found *findings, e gjson.Result) {
	name := "etcd at " + e.Get("endpoint").String()
	defragment := "defragment one member at a time: etcdctl defrag --endpoints " + e.Get("endpoint").String()
	if e.Get("endpoint").String() == inProcess {
		name = "the etcd of the standalone"
		defragment = "restart the standalone, which defragments its etcd; the servers run on: systemctl restart orrery-standalone"
	}
	if !e.Get("ok").Bool() {
		found.add(fail, "on its machine: systemctl status etcd", "%s does not answer: %s", name, e.Get("error"))
		return
	}
	for _, alarm := range e.Get("alarms").Array() {
		found.add(fail, "compact, then etcdctl defrag, then etcdctl alarm disarm", "%s has an alarm: %s", name, alarm)
	}
	if latency := e.Get("latencyMs").Float(); latency > slowEtcd {
		found.add(warn, "give etcd a fast disk, and a machine near the gateways", "%s takes %.0f ms for an answer", name, latency)
	}
	checkSize(found, name, defragment, e)
}

func checkSize(found *findings, name, defragment string, e gjson.Result) {
	size, used, quota := e.Get("dbSizeBytes").Int(), e.Get("dbSizeInUseBytes").Int(), e.Get("quotaBytes").Int()
	of := ""
	if quota > 0 {
		of = " of " + kinds.Size(quota)
	}
	switch share := float64(size) / float64(max(quota, 1)); {
	case quota > 0 && share >= quotaFail:
		found.add(fail, defragment, "%s uses %s%s: it will refuse all writes", name, kinds.Size(size), of)
	case quota > 0 && share >= quotaWarn:
		found.add(warn, defragment, "%s uses %s%s", name, kinds.Size(size), of)
	case size >= defragmentFrom && used < size/2:
		found.add(warn, defragment, "the database of %s has %s and uses %s of them", name, kinds.Size(size), kinds.Size(used))
	default:
		found.add(ok, "", "%s, version %s, uses %s%s", name, e.Get("version"), kinds.Size(size), of)
	}
}

// longHistory is how many revisions etcd may keep. It is the history of some minutes in a large cluster.
const longHistory = 1_000_000

func checkCompaction(found *findings, etcd gjson.Result) {
	const fix = "start each member of etcd with --auto-compaction-mode periodic --auto-compaction-retention 10m"
	compacted, history := etcd.Get("compactedRevision"), etcd.Get("historyRevisions")
	switch {
	case compacted.Type == gjson.Null || history.Type == gjson.Null:
		found.add(skip, "", "it is not known how much history etcd keeps")
	case history.Int() > longHistory && compacted.Int() == 0:
		found.add(fail, fix, "etcd was never compacted and keeps a history of %d revisions, so its database grows without end", history.Int())
	case history.Int() > longHistory:
		found.add(warn, fix, "etcd keeps a history of %d revisions", history.Int())
	default:
		found.add(ok, "", "etcd keeps a history of %d revisions", history.Int())
	}
}

// checkClocks compares the clocks of nodes with that of the gateway. Older servers do not measure them.
func checkClocks(ctx context.Context, s *subject) (found findings) {
	if found.unable(s.diagnose(ctx), "system.settings") {
		return found
	}
	clocks := gjson.GetBytes(s.diagnostics, "clocks")
	if !clocks.Exists() {
		found.add(skip, "", "this version of the server does not measure the clocks of nodes")
		return found
	}
	for _, c := range clocks.Array() {
		judgeClock(&found, "node "+c.Get("nodeId").String(), "the gateway", time.Duration(c.Get("offsetMs").Int())*time.Millisecond)
	}
	return found
}

// services must run, each at least once.
var services = []string{"apigateway", "enforcer", "scheduler", "templatesvc"}

// cluster reads the members once.
func (s *subject) cluster(ctx context.Context) error {
	if s.members != nil {
		return nil
	}
	answer, err := s.client.ListClusterMembers(ctx)
	if err != nil {
		return err
	}
	s.members = answer.Members
	return nil
}

func checkServices(ctx context.Context, s *subject) (found findings) {
	if found.unable(s.cluster(ctx), "cluster.view") {
		return found
	}
	for _, service := range services {
		var replicas []string
		for _, m := range s.members {
			if m.Service == service {
				replicas = append(replicas, m.Replica)
			}
		}
		if len(replicas) == 0 {
			found.add(fail, "start one: systemctl start orrery@"+service, "no replica of %s runs", service)
			continue
		}
		found.add(ok, "", "%s runs: %s", service, strings.Join(replicas, ", "))
	}
	return found
}

// checkVersions compares the versions of all members and nodes with that of this program.
func checkVersions(ctx context.Context, s *subject) (found findings) {
	if found.unable(s.cluster(ctx), "cluster.view") {
		return found
	}
	holders := map[string][]string{app.Version(): {"this program"}}
	for _, m := range s.members {
		holders[m.Version] = append(holders[m.Version], m.Service+" "+m.Replica)
	}
	if s.readNodes(ctx) == nil {
		for _, n := range s.nodes {
			if n.Version != "" {
				holders[n.Version] = append(holders[n.Version], "node "+n.ID)
			}
		}
	}
	maps.DeleteFunc(holders, func(version string, _ []string) bool { return !app.Released(version) })
	if len(holders) < 2 {
		found.add(ok, "", "all versions are the same")
		return found
	}
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(holders)) {
		parts = append(parts, fmt.Sprintf("%s: %s", version, strings.Join(holders[version], ", ")))
	}
	found.add(warn, "bring all to the newest version, nodes last", "there are %d versions: %s", len(holders), strings.Join(parts, "; "))
	return found
}
