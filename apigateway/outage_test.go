package apigateway

import (
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestWithoutEtcdAWriteIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.etcd.Stop()
	var asking sync.WaitGroup
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/api/v1/groups", `{"name":"arena"}`},
		{"PATCH", "/api/v1/groups/lobby", `{"minInstances":1}`},
		{"POST", "/api/v1/groups/lobby/scale", `{"targetInstances":2}`},
		{"POST", "/api/v1/groups/lobby/start", ``},
		{"DELETE", "/api/v1/groups/lobby", ``},
		{"POST", "/api/v1/api-tokens", `{"name":"ci"}`},
		{"POST", "/api/v1/events/ticket", ``},
		{"GET", "/api/v1/audit", ``},
		{"PUT", "/api/configurations/lobby", `{"ramMB":512}`},
	} {
		asking.Go(func() {
			reply, err := s.try(r.method, r.path, r.body)
			if err != nil {
				t.Errorf("%s %s: %v", r.method, r.path, err)
				return
			}
			if reply.status != 503 {
				t.Errorf("%s %s: %d, want 503: %s", r.method, r.path, reply.status, reply.raw)
			}
			reply.naming("etcd is not reachable").naming("nodeagent local")
		})
	}
	asking.Wait()
	s.do("GET", "/api/v1/groups", nil).want(200).is("total", 1)
	s.etcd.Restart(t)
}
