package apigateway

import (
	"errors"
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/lifecycle"
)

func TestAReplicaThatIsAskedToEndsAndTheOtherServesOn(t *testing.T) {
	a := newSite(t)
	b := second(t, a)
	b.do("GET", "/api/v1/system/settings", nil).want(200).is("replica", b.gateway.cfg.Replica).is("metricsEnabled", true).is("schedulerInterval", 0).
		is("effective.http.cors.allowedOrigins", []string{"*"}).is("activeConfigVersion", 0).is("instanceCount", 0)
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
