package apigateway

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestABackupThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.running("lobby")
	rev := s.revision()
	for names, body := range map[string]string{
		"group must be static":    `{"group":"lobby","action":"backup","cron":"0 4 * * *"}`,
		"instance must be static": `{"instance":"lobby-1","action":"backup","cron":"0 4 * * *"}`,
		"backup has a meaning":    `{"group":"lobby","action":"stop","backup":{"keep":1},"cron":"0 4 * * *"}`,
		"backup.keep must":        `{"group":"lobby","action":"backup","backup":{"keep":101},"cron":"0 4 * * *"}`,
		"backup.before[0] must":   `{"group":"lobby","action":"backup","backup":{"before":["a\nb"]},"cron":"0 4 * * *"}`,
		"backup.after must have":  `{"group":"lobby","action":"backup","backup":{"after":[` + strings.Repeat(`"x",`, 10) + `"x"]},"cron":"0 4 * * *"}`,
		"backup.until has a":      `{"group":"lobby","action":"backup","backup":{"until":"Saved"},"cron":"0 4 * * *"}`,
		"action must be drain":    `{"node":"node-1","action":"backup","cron":"0 4 * * *"}`,
	} {
		s.do("PUT", "/api/v1/schedules/nightly", body).want(422).naming(names)
	}
	base := "/api/v1/instances/lobby-1/backups"
	s.do("POST", base, `{"keep":-1}`).want(422).naming("keep")
	s.do("POST", base, `{"until":"Saved"}`).want(422).naming("until")
	s.do("POST", base, `{"after":["save-on"]}`).want(422).naming("after")
	s.do("POST", base, `{"before":[""]}`).want(422).naming("before[0]")
	s.do("POST", base, `{"when":"now"}`).want(400).naming("when")
	s.do("GET", base+"/20260102-030405-abcd?waitSeconds=soon", nil).want(400).naming("waitSeconds")
	s.do("POST", base+"/20260102-030405-abcd/restore", nil).want(409).naming("stop it first")
	s.do("POST", base+"/x/restore", nil).want(404).naming("list its backups")
	s.do("GET", "/api/v1/instances/lobby-9/backups", nil).want(404)
	s.do("POST", "/api/v1/roles", `{"name":"KEEPER","permissions":["groups.view","groups.update","backups.view","backups.manage"]}`).want(201)
	keeper := s.user("ed", "KEEPER")
	keeper.do("POST", base, `{"before":["save-off"]}`).want(403).naming("instances.command")
	keeper.do("POST", base+"/x/restore", nil).want(403).naming("backups.restore")
	for _, key := range s.moved(rev) {
		if strings.Contains(key, "schedules/") {
			t.Errorf("a refused request wrote %s", key)
		}
	}
	s.do("POST", "/api/v1/roles", `{"name":"EDITOR","permissions":["groups.view","groups.update"]}`).want(201)
	s.group("world", map[string]any{"static": true})
	editor := s.user("eve", "EDITOR")
	nightly := `{"group":"world","action":"backup","cron":"0 4 * * *"}`
	editor.do("PUT", "/api/v1/schedules/nightly", nightly).want(403).naming("backups.manage")
	keeper.do("PUT", "/api/v1/schedules/nightly", nightly).want(201).is("backup.keep", 7)
	keeper.do("PUT", "/api/v1/schedules/paused", `{"group":"world","action":"backup","backup":{"before":["save-off"]},"cron":"0 4 * * *"}`).want(403).naming("instances.command")
	s.do("PATCH", "/api/v1/schedules/nightly", `{"action":"stop"}`).want(200).is("backup", nil)
}
