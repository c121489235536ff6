package apigateway

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const acme = `{"selector":{"tenant":"acme"},"limit":{"memoryMb":1024,"cpu":200,"instances":4},"reserved":{"memoryMb":512}}`

func TestAQuotaIsMadeReadReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("GET", "/api/v1/quotas", nil).want(200).is("total", 0).is("data", []any{})
	made := s.do("PUT", "/api/v1/quotas/acme", acme).want(201)
	made.is("name", "acme").is("selector", map[string]string{"tenant": "acme"}).is("limit", map[string]int{"memoryMb": 1024, "cpu": 200, "instances": 4}).
		is("reserved", map[string]int{"memoryMb": 512, "cpu": 0, "instances": 0}).is("held", map[string]int{"memoryMb": 0, "cpu": 0, "instances": 0}).
		is("message", "").is("updatedBy", "admin")
	if made.header.Get("Location") != "/api/v1/quotas/acme" || made.header.Get("ETag") == "" {
		t.Errorf("headers %v", made.header)
	}
	read := s.do("GET", "/api/v1/quotas/acme", nil).want(200)
	if read.raw != made.raw || read.header.Get("ETag") != made.header.Get("ETag") {
		t.Errorf("read %s\nmade %s", read.raw, made.raw)
	}
	before := s.revision()
	s.do("PUT", "/api/v1/quotas/acme", read.raw).want(200)
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("writing back what was read wrote something: %v", keys)
	}
	s.do("PUT", "/api/v1/quotas/acme", `{"selector":{"tenant":"acme"},"limit":{"instances":2}}`).want(200).
		is("limit", map[string]int{"memoryMb": 0, "cpu": 0, "instances": 2}).is("reserved.memoryMb", 0)
	s.do("GET", "/api/v1/quotas", nil).want(200).is("total", 1)
	s.do("DELETE", "/api/v1/quotas/acme", nil).want(204)
	s.do("DELETE", "/api/v1/quotas/acme", nil).want(404)
	s.do("GET", "/api/v1/quotas/acme", nil).want(404)
	if _, err := store.Get(t.Context(), s.store, keys.QuotaAlloc("acme")); !errs.Is(err, errs.NotFound) {
		t.Errorf("something of it is left: %v", err)
	}
	s.do("GET", "/api/v1/audit?class=CHANGE", nil).want(200).naming("quota.create").naming("quota.update").naming("quota.delete").is("total", 3)
}

func TestAChangedQuotaBarsWhatWasDecidedUnderIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, body := range []string{acme, `{"selector":{"tenant":"acme"},"limit":{"instances":2}}`} {
		before := s.revision()
		s.do("PUT", "/api/v1/quotas/acme", body)
		for _, name := range []string{"acme", fleet.ReservedAlloc} {
			if a, err := store.Get(t.Context(), s.store, keys.QuotaAlloc(name)); err != nil || a.ModRev <= before {
				t.Errorf("a placement decided before could still be committed: %+v, %v", a, err)
			}
		}
	}
}

func TestAQuotaShowsWhatItsGroupsHold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	for name, tenant := range map[string]string{"one": "acme", "two": "acme", "other": "umbra"} {
		s.group(name, map[string]any{"labels": map[string]string{"tenant": tenant, "tier": "1"}})
		s.hold(s.start(name), "node-1", fleet.Resources{MemoryMiB: 100, CPU: 50})
	}
	s.start("one") // pending, without resources
	ended := s.start("two")
	s.hold(ended, "node-1", fleet.Resources{MemoryMiB: 100})
	s.status(ended, "node-1", fleet.Status{State: fleet.Crashed})
	s.do("PUT", "/api/v1/quotas/acme", acme).want(201).is("held", map[string]int{"memoryMb": 200, "cpu": 100, "instances": 2}).is("message", "")
	s.do("PUT", "/api/v1/quotas/none", `{"selector":{"tenant":"acme","tier":"2"},"limit":{"instances":1}}`).want(201).is("held.instances", 0)
	before := s.revision()
	low := `{"selector":{"tenant":"acme"},"limit":{"memoryMb":150,"instances":2}}`
	s.do("PUT", "/api/v1/quotas/acme?dryRun=true", low).want(200).is("action", "update").naming("200 of at most 150 MiB").naming(`"field":"limit"`)
	s.do("DELETE", "/api/v1/quotas/acme?dryRun=true", nil).want(200).is("action", "delete")
	s.do("PUT", "/api/v1/quotas/new?dryRun=true", low).want(200).is("action", "create")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a dry run wrote something: %v", keys)
	}
	r := s.do("PUT", "/api/v1/quotas/acme", low).want(200).naming("200 of at most 150 MiB of memory").naming("Running instances continue")
	if strings.Contains(r.raw, "of at most 2 instances") {
		t.Errorf("a kept part is blamed: %s", r.raw)
	}
	s.do("GET", "/api/v1/quotas/acme", nil).want(200).naming("200 of at most 150 MiB")
	for _, i := range s.view.Snapshot().Instances.All() {
		if i.Intent.Desired != fleet.DesiredRunning {
			t.Errorf("%s was stopped", i.Intent.Name)
		}
	}
}

func TestAChangeOfAQuotaBasedOnAnOldReadIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	tag := s.do("PUT", "/api/v1/quotas/acme", acme).want(201).header.Get("ETag")
	next := `{"selector":{"tenant":"acme"},"limit":{"instances":2}}`
	moved := s.do("PUT", "/api/v1/quotas/acme", next, "If-Match", tag).want(200).header.Get("ETag")
	s.do("PUT", "/api/v1/quotas/acme", acme, "If-Match", tag).want(412)
	s.do("DELETE", "/api/v1/quotas/acme", nil, "If-Match", tag).want(412)
	s.do("PUT", "/api/v1/quotas/fresh", acme, "If-Match", tag).want(412)
	s.do("DELETE", "/api/v1/quotas/acme", nil, "If-Match", "x").want(400)
	s.do("DELETE", "/api/v1/quotas/acme", nil, "If-Match", moved).want(204)
}

func TestABadQuotaIsRefusedByNameAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/quotas/acme", acme).want(201)
	before := s.revision()
	for _, c := range []struct {
		name, body string
		status     int
		says       string
	}{
		{"malformed JSON", `{"selector":`, 400, "JSON"},
		{"an empty body", ``, 400, "empty"},
		{"an unknown field", `{"selector":{"a":"b"},"limits":{}}`, 400, "limits"},
		{"an unknown part", `{"selector":{"a":"b"},"limit":{"players":1}}`, 400, "limit.players"},
		{"a word for a number", `{"selector":{"a":"b"},"limit":{"cpu":"all"}}`, 400, "cpu"},
		{"a list for labels", `{"selector":["a"],"limit":{"cpu":1}}`, 400, "selector"},
		{"a label given twice", `{"selector":{"a":"b","a":"c"},"limit":{"cpu":1}}`, 400, "selector.a is given twice"},
		{"a label without a key", `{"selector":{"":"c"},"limit":{"cpu":1}}`, 422, "selector"},
		{"half an instance", `{"selector":{"a":"b"},"limit":{"instances":1.5}}`, 400, "limit.instances"},
		{"a number past all integers", `{"selector":{"a":"b"},"limit":{"memoryMb":9223372036854775808}}`, 400, "limit.memoryMb"},
		{"no selector", `{"limit":{"instances":1}}`, 422, "selector"},
		{"an empty selector", `{"selector":{},"limit":{"instances":1}}`, 422, "selector"},
		{"a selector of nothing", `{"selector":{"a":null},"limit":{"instances":1}}`, 422, "selector"},
		{"a selector no label can match", `{"selector":{"a b":"c"},"limit":{"instances":1}}`, 422, "selector"},
		{"nothing bounded", `{"selector":{"a":"b"}}`, 422, "limit"},
		{"a negative limit", `{"selector":{"a":"b"},"limit":{"memoryMb":-1}}`, 422, "limit.memoryMb"},
		{"a limit past all bounds", `{"selector":{"a":"b"},"limit":{"instances":100001}}`, 422, "limit.instances"},
		{"a negative reservation", `{"selector":{"a":"b"},"reserved":{"cpu":-1}}`, 422, "reserved.cpu"},
		{"more reserved than allowed", `{"selector":{"a":"b"},"limit":{"cpu":1},"reserved":{"cpu":2}}`, 422, "reserved"},
		{"another name", `{"name":"other","selector":{"a":"b"},"limit":{"cpu":1}}`, 422, "renamed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *s
			sub.t = t
			sub.do("PUT", "/api/v1/quotas/acme", c.body).want(c.status).naming(c.says)
			sub.do("PUT", "/api/v1/quotas/fresh", c.body).want(c.status).naming(c.says)
		})
	}
	for _, name := range []string{".hidden", "a%20b", strings.Repeat("a", 65)} {
		s.do("PUT", "/api/v1/quotas/"+name, acme).want(422).naming("name")
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused request wrote something: %v", keys)
	}
}

func TestAChangedQuotaGetsThroughWhilePlacementsTouchIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("PUT", "/api/v1/quotas/acme", acme).want(201)
	ctx, stop := context.WithCancel(t.Context())
	var schedulers sync.WaitGroup
	for range 4 {
		schedulers.Go(func() {
			var rev int64
			for ctx.Err() == nil {
				next, err := s.store.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.QuotaAlloc("acme"), cluster.QuotaAlloc{Quota: "acme"}, rev)}})
				if err == nil {
					rev = next
					continue
				}
				if a, err := store.Get(ctx, s.store, keys.QuotaAlloc("acme")); err == nil {
					rev = a.ModRev
				}
			}
		})
	}
	defer schedulers.Wait()
	defer stop()
	for n := range 20 {
		s.do("PUT", "/api/v1/quotas/acme", fmt.Sprintf(`{"selector":{"tenant":"acme"},"limit":{"instances":%d}}`, n+1)).want(200)
	}
}
