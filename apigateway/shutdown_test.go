package apigateway

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/lifecycle"
)

func TestAReplicaThatIsAskedToEndsAndTheOtherServesOn(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	b.do("GET", "/api/v1/system/settings", nil).want(200).is("replica", b.gateway.cfg.Replica).is("metricsEnabled", true).is("schedulerInterval", 0).
		is("effective.http.cors.allowedOrigins", []string{}).is("activeConfigVersion", 0).is("instanceCount", 0)
	b.user("otto", "OPERATOR").do("POST", "/api/v1/system/shutdown", nil).want(403)
	b.do("POST", "/api/v1/system/shutdown?dryRun=true", nil).want(200).is("action", "stop")
	b.do("POST", "/api/v1/system/shutdown", nil).want(202).is("status", "STOPPING")
	await.That(t, "nobody is answered any more", func() string {
		_, err := b.try("GET", "/livez", nil)
		return await.Unless(err != nil, "it answers")
	})
	a.do("GET", "/api/v1/audit", nil).want(200).naming("system.shutdown")
}

func TestTheEndOfAReplicaThatWasAskedToIsNoFailure(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cfg := s.gateway.cfg
	cfg.View, cfg.Replica, cfg.Metrics = newUnstartedView(s), "other", nil
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1)
	go func() {
		other := *s
		select {
		case <-g.Ready():
		case <-t.Context().Done():
		}
		other.url = "http://" + g.Addr()
		r, err := other.try("POST", "/api/v1/system/shutdown", nil)
		if err != nil || r.status != 202 {
			asked <- fmt.Sprintf("the answer got lost: %+v, %v", r, err)
		}
		close(asked)
	}()
	if err := runWithView(t, g); !errors.Is(err, lifecycle.ErrEnd) {
		t.Errorf("err = %v", err)
	}
	if problem := <-asked; problem != "" {
		t.Error(problem)
	}
}

func TestACommandShutsTheWholeClusterDown(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	agent := a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	asked := make(chan string, 4)
	agent.mu.Lock()
	agent.more = func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + r.URL.Path
		w.WriteHeader(http.StatusNoContent)
	}
	agent.mu.Unlock()
	await.That(t, "both gateways and the node are known", func() string {
		s := a.view.Snapshot()
		return await.Unless(len(s.ServiceSessions("apigateway")) == 2 && s.NodeSessions.Len() == 1, "not yet")
	})
	const command = "/api/commands/execute"
	a.do("POST", command, `{"command":"cluster shutdown"}`).want(200).is("success", false).naming("cluster shutdown confirm")
	for token, status := range map[string]int{secret: 409, a.token: 404} { // for another gateway, and from a caller that is not a gateway
		r, err := a.as(token).try("POST", "/internal/v1/end", `{"to":"x"}`)
		if err != nil || r.status != status {
			t.Errorf("%+v, %v, want %d", r, err, status)
		}
	}
	a.user("otto", "OPERATOR").do("POST", command, `{"command":"cluster shutdown confirm"}`).want(403)
	if len(asked) > 0 {
		t.Errorf("asked %s", <-asked)
	}
	a.do("POST", command, `{"command":"cluster shutdown confirm"}`).want(200).is("success", true).is("output.0", "node node-1 stops its instances, and its agent ends").
		is("output.1", "gateway "+b.gateway.cfg.Replica+" ends")
	if got := <-asked; got != "POST/v1/shutdown" {
		t.Errorf("asked %s", got)
	}
	for _, s := range []*site{a, b} {
		await.That(t, "nobody is answered any more", func() string {
			_, err := s.try("GET", "/livez", nil)
			return await.Unless(err != nil, "it answers")
		})
	}
}

func TestAClusterIsShutDownOnceUnderItsKey(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	var asked [2]atomic.Int32
	for n, name := range []fleet.NodeID{"node-1", "node-2"} {
		agent := a.node(name, fleet.Resources{MemoryMiB: 4096})
		agent.mu.Lock()
		agent.more = func(w http.ResponseWriter, _ *http.Request) {
			if asked[n].Add(1) == 1 && n == 1 {
				panic(http.ErrAbortHandler) // shuts down, but breaks off the response
			}
			w.WriteHeader(http.StatusNoContent)
		}
		agent.mu.Unlock()
	}
	times := func(first, other int32) {
		t.Helper()
		if got := [2]int32{asked[0].Load(), asked[1].Load()}; got != [2]int32{first, other} {
			t.Errorf("asked %d times, want %d and %d", got, first, other)
		}
	}
	const path, command = "/api/commands/execute", `{"command":"cluster shutdown confirm"}`
	a.do("POST", path, command, keyed, "k").want(200).is("success", false).is("output.0", "node node-1 stops its instances, and its agent ends").
		naming("node node-2 may have heard it").naming("so the gateways keep running")
	times(1, 1)
	a.do("POST", path, command, keyed, "k").want(409).naming("system.shutdown of cluster: 2 nodes").naming("its outcome is unknown")
	times(1, 1)
	a.do("POST", path, command, keyed, "other").want(200).is("success", true).is("output.1", "node node-2 stops its instances, and its agent ends")
	times(2, 2)
	await.That(t, "nobody is answered any more", func() string {
		_, err := a.try("GET", "/livez", nil)
		return await.Unless(err != nil, "it answers")
	})
	b := second(t, a)
	again := b.do("POST", path, command, keyed, "other").want(200).is("success", true).is("output.1", "node node-2 stops its instances, and its agent ends")
	if again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the cluster is ended again: %v", again.header)
	}
	times(2, 2)
	b.do("GET", "/livez", nil).want(200)
}
