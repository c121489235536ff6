package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

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

const (
	// quotaWarn and quotaFail are how much of its quota the database of etcd may use.
	quotaWarn, quotaFail = 0.8, 0.95
	// defragmentFrom is the size of a database, in bytes, from which unused space in it matters.
	defragmentFrom = 256 << 20
)

// checkEtcd reads the section etcd of the diagnostics, which older servers lack.
func checkEtcd(ctx context.Context, s *subject) (found findings) {
	var body json.RawMessage
	err := s.client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: "/api/v1/system/diagnostics"}, &body)
	if found.unable(err, "system.settings") {
		return found
	}
	etcd := gjson.GetBytes(body, "etcd")
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
	name := e.Get("endpoint").String()
	if reason := e.Get("error").String(); reason != "" {
		found.add(fail, "on its machine: systemctl status etcd", "etcd at %s does not answer: %s", name, reason)
		return
	}
	for _, alarm := range e.Get("alarms").Array() {
		found.add(fail, "compact, then etcdctl defrag, then etcdctl alarm disarm", "etcd at %s has an alarm: %s", name, alarm)
	}
	size, used, quota := e.Get("dbSizeBytes").Int(), e.Get("dbSizeInUseBytes").Int(), e.Get("quotaBytes").Int()
	const defragment = "defragment one member at a time: etcdctl defrag --endpoints "
	const raise = ", or raise --quota-backend-bytes"
	of := ""
	if quota > 0 {
		of = " of " + kinds.Size(quota)
	}
	switch share := float64(size) / float64(max(quota, 1)); {
	case quota > 0 && share >= quotaFail:
		found.add(fail, defragment+name+raise, "etcd at %s uses %s%s: it will refuse all writes", name, kinds.Size(size), of)
	case quota > 0 && share >= quotaWarn:
		found.add(warn, defragment+name+raise, "etcd at %s uses %s%s", name, kinds.Size(size), of)
	case size >= defragmentFrom && used < size/2:
		found.add(warn, defragment+name, "the database of etcd at %s has %s, of which %s are used", name, kinds.Size(size), kinds.Size(used))
	default:
		found.add(ok, "", "etcd at %s, version %s, uses %s%s", name, e.Get("version"), kinds.Size(size), of)
	}
}

// uncompactedWarn is how many revisions may be kept in the history of etcd.
const uncompactedWarn = 1_000_000

func checkCompaction(found *findings, etcd gjson.Result) {
	compacted := etcd.Get("compactedRevision")
	if !compacted.Exists() || compacted.Type == gjson.Null {
		return
	}
	newest := int64(0)
	for _, e := range etcd.Get("endpoints").Array() {
		newest = max(newest, e.Get("revision").Int())
	}
	kept := newest - compacted.Int()
	if kept > uncompactedWarn {
		found.add(warn, "start each member of etcd with --auto-compaction-mode periodic --auto-compaction-retention 10m", "etcd keeps a history of %d revisions", kept)
		return
	}
	found.add(ok, "", "etcd keeps a history of %d revisions", max(kept, 0))
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
			found.add(fail, "start one: systemctl start orrery-"+service, "no replica of %s runs", service)
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
	maps.DeleteFunc(holders, func(version string, _ []string) bool { return !released(version) })
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
