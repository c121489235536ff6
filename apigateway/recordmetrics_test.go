package apigateway

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestKeptRecordsAreCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.status(s.start("lobby"), "node-1", fleet.Status{State: fleet.Stopped})
	s.start("lobby")
	s.crash(1, time.Hour, nil)
	s.do("POST", "/api/v1/groups/lobby/deploy", `{}`).want(202)
	m := s.do("GET", "/api/metrics", nil).want(200).raw
	for kind, n := range map[string]string{"finished_instances": "1", "crashes": "1", "deployments": "1", "allocations": "0", "schedule_runs": "0"} {
		if line := `orrery_apigateway_kept_records{kind="` + kind + `"} ` + n + "\n"; !strings.Contains(m, line) {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(m, `kept_records{kind="audit"} 0`) {
		t.Error("the audit has entries")
	}
}
