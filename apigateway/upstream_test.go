package apigateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestACallIsForItsRequestWhichTakesItAlongWhenItIsGone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	arrived, gone := make(chan string, 1), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("X-Correlation-Id")
		<-r.Context().Done()
		close(gone)
	}))
	t.Cleanup(silent.Close)
	s.commit(
		store.Create(keys.Node("n1"), fleet.Node{
			ID: "n1", Address: "10.0.0.1", AgentURL: silent.URL, Capacity: fleet.Resources{MemoryMiB: 8192, CPU: 400}, JoinedAt: time.Now(),
			Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}},
		}),
		store.Create(keys.NodeSession("n1"), fleet.NodeSession{Node: "n1", StartedAt: time.Now()}),
	)
	s.group("lobby", nil)
	id := s.start("lobby")
	s.hold(id, "n1", fleet.Resources{})

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/services/lobby-1/console/history", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("X-Correlation-Id", "build-7.3")
	left := make(chan error, 1)
	go func() {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	select {
	case got := <-arrived:
		if got != "build-7.3" {
			t.Errorf("the agent was called for %q", got)
		}
	case <-time.After(await.Patience):
		t.Fatal("the agent was not called")
	}
	leave()
	if err := <-left; err == nil {
		t.Error("the request was answered, by an agent that says nothing")
	}
	select {
	case <-gone:
	case <-time.After(await.Patience):
		t.Fatal("the agent is still called for a client that is gone")
	}
}
