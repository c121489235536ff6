package apigateway

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
)

// changes returns a summary of an object's history, newest first.
func (s *site) changes(path string) (all []string) {
	s.t.Helper()
	for _, e := range s.do("GET", "/api/v1/history/"+path, nil).want(200).data() {
		e, _ := e.(map[string]any)
		diff, _ := json.Marshal(e["diff"])
		all = append(all, fmt.Sprintf("%v %v %s", e["by"], e["action"], diff))
	}
	return all
}

func TestHistoryListsChangesWithAuthor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	operator := s.user("otto", "OPERATOR")
	s.group("lobby", nil)
	s.group("other", nil)
	operator.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":64,"env":{"A":"1"}}`).want(200)
	s.do("POST", "/api/v1/groups/lobby/scale", `{"targetInstances":2}`).want(200)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"VIEWER"}`).want(201)
	s.do("PATCH", "/api/v1/users/bob", `{"username":"robert"}`).want(200)
	got := s.changes("group/lobby")
	want := []string{
		`admin group.scale [{"field":"minInstances","from":0,"to":2}]`,
		`otto group.update [{"field":"env","from":{},"to":{"A":"1"}},{"field":"memoryMb","from":1024,"to":64}]`,
	}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || !strings.HasPrefix(got[2], `admin group.create [{"field":"`) {
		t.Errorf("of the group:\n%s", strings.Join(got, "\n"))
	}
	for path, n := range map[string]int{"user/robert": 1, "user/Bob": 2} {
		got := s.changes(path)
		if len(got) != n || got[0] != `admin user.update [{"field":"username","from":"bob","to":"robert"}]` {
			t.Errorf("%s:\n%s", path, strings.Join(got, "\n"))
		}
	}
	s.do("GET", "/api/v1/history/group/lobby?pageSize=1&page=2", nil).want(200).is("total", 3).is("data.0.by", "otto").is("data.0.truncated", false)
	s.do("GET", "/api/v1/history/group/none", nil).want(404).naming("none")
	s.do("GET", "/api/v1/history/user/admin", nil).want(200).is("total", 0) // exists, but was never changed
	s.do("GET", "/api/v1/history/thing/x", nil).want(404)
	operator.do("GET", "/api/v1/history/secret/x", nil).want(403)
}

func TestHistoryShowsEarlierState(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	before := s.revision()
	type was struct {
		revision int64
		at       string
	}
	moment := func(r *reply) was {
		t.Helper()
		w := was{s.revision(), time.Now().UTC().Format(time.RFC3339Nano)}
		if r.status >= 300 {
			t.Fatalf("%s: %d %s", r.what, r.status, r.raw)
		}
		return w
	}
	first := moment(s.group("lobby", map[string]any{"memoryMb": 64, "env": map[string]string{"A": "1", "B": "2"}, "templates": []string{}}))
	shown := s.do("GET", "/api/v1/groups/lobby", nil).want(200)
	moment(s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":5,"env":{"A":null,"C":"3"},"motds":["x"]}`))
	third := moment(s.do("PATCH", "/api/v1/groups/lobby", `{"env":{"A":"9"},"motds":[]}`))
	gone := moment(s.do("DELETE", "/api/v1/groups/lobby", nil))
	at := func(path string, at any) *reply {
		t.Helper()
		return s.do("GET", "/api/v1/history/"+path+"?at="+url.QueryEscape(fmt.Sprint(at)), nil)
	}
	for _, at := range []*reply{at("group/lobby", first.revision), at("group/lobby", first.at)} {
		object, _ := at.want(200).is("by", "admin").is("action", "group.create").field("object").(map[string]any)
		for field, is := range object {
			if field != "managedBy" && field != "crashesResetAt" {
				shown.is(field, is)
			}
		}
		if len(object) < 50 {
			t.Errorf("only %v", object)
		}
	}
	at("group/lobby", third.revision).want(200).is("object.memoryMb", 5).is("object.env", map[string]string{"A": "9", "B": "2", "C": "3"}).is("object.motds", []any{})
	at("group/lobby", gone.revision).want(404)
	at("group/lobby", before).want(404).naming("the audit begins at")
	at("group/lobby", "x").want(400).naming("at")

	cordoned := moment(s.do("POST", "/api/v1/nodes/node-1/cordon", nil))
	s.do("PATCH", "/api/v1/nodes/node-1", `{"labels":{"ssd":"1"}}`).want(200)
	at("node/node-1", cordoned.revision).want(200).is("object", map[string]any{"cordoned": true})
	at("node/node-1", cordoned.revision-1).want(200).is("object", map[string]any{"cordoned": false}).is("by", nil).is("revision", nil)

	none := s.revision()
	s.do("PUT", "/api/v1/groups/lobby2", `{}`).want(201)
	id := s.start("lobby2")
	began := s.revision()
	s.do("POST", "/api/v1/services/lobby2-1/stop", nil).want(200)
	at("instance/lobby2-1", began).want(200).is("action", "group.start").is("object.desired", "running")
	at("instance/"+string(id), none).want(404)

	for n := 1; n < 4; n++ {
		s.do("PUT", "/api/v1/secrets/db", fmt.Sprintf(`{"value":"v%d"}`, n)).want(map[bool]int{true: 201, false: 200}[n == 1])
	}
	e := s.do("GET", "/api/v1/history/secret/db?pageSize=1&page=2", nil).want(200).is("total", 3)
	revision, _ := e.field("data.0.revision").(float64)
	at("secret/db", int64(revision)).want(200).is("object.version", 2).is("revision", revision)
}

func TestAChangeThatIsTooLargeToBeKeptSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	first := s.revision()
	s.do("PATCH", "/api/v1/groups/lobby", map[string]any{"env": map[string]string{"A": strings.Repeat("x", 20_000)}}).want(200)
	s.do("PATCH", "/api/v1/groups/lobby", `{"memoryMb":5}`).want(200)
	s.do("GET", "/api/v1/history/group/lobby", nil).want(200).is("data.1.truncated", true).is("data.1.diff", []any{}).is("data.0.truncated", false)
	s.do("GET", "/api/v1/history/group/lobby?at="+strconv.FormatInt(first, 10), nil).want(404).naming("too large")
}

func TestConflictNamesLastAuthor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	other := s.user("otto", "ADMIN")
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	for path, bodies := range map[string][2]string{
		"/api/v1/groups/lobby":          {`{"memoryMb":5}`, `{"memoryMb":6}`},
		"/api/v1/quotas/all":            {`{"selector":{"a":"b"},"limit":{"instances":5}}`, `{"selector":{"a":"b"},"limit":{"instances":6}}`},
		"/api/v1/bindings/mods":         {`{"role":"VIEWER"}`, `{"role":"OPERATOR"}`},
		"/api/v1/secrets/db":            {`{"value":"x"}`, `{"value":"y"}`},
		"/api/v1/template-sources/repo": {`{"kind":"git","url":"https://x.example/r.git"}`, `{"kind":"git","url":"https://x.example/r.git","branch":"b"}`},
	} {
		seen := s.do("PUT", path, bodies[0]).want(201).header.Get("ETag")
		other.do("PUT", path, bodies[1]).want(200)
		refused := s.do("PUT", path, bodies[0], "If-Match", seen).want(412).naming("otto changed it at 20")
		s.do("DELETE", path, nil, "If-Match", seen).want(412).naming("otto")
		if strings.Contains(refused.raw, "admin") {
			t.Errorf("%s: %s", path, refused.raw)
		}
	}
}

func TestOtherGatewayReadsOwnWrites(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	for n := range 20 {
		path := fmt.Sprint("/api/v1/groups/g", n)
		rev := a.do("PUT", path, `{}`).want(201).header.Get("Orrery-Revision")
		if rev == "" {
			t.Fatal("the answer tells no revision")
		}
		b.do("GET", path, nil, "Orrery-Revision", rev).want(200)
		b.do("POST", path+"/scale?minRevision="+rev, `{"targetInstances":0}`).want(200)
	}
	b.do("GET", "/api/v1/groups?minRevision=x", nil).want(400).naming("minRevision")
	b.do("GET", "/api/v1/groups", nil, "Orrery-Revision", "-1").want(400)
	b.do("GET", "/api/v1/groups?minRevision=0", nil).want(200)
	if same := a.do("PATCH", "/api/v1/groups/g0", `{}`).want(200); same.header.Get("Orrery-Revision") == "" {
		t.Error("what changes nothing tells no revision")
	}
	if refused := a.do("PATCH", "/api/v1/groups/none", `{}`).want(404); refused.header.Get("Orrery-Revision") != "" {
		t.Error("what was refused tells a revision")
	}
}

func TestLostRevisionDoesNotBlockRequests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("kept", nil)
	kept := s.revision()
	s.etcd.Stop()
	backup := s.etcd.Backup(t)
	s.etcd.Restart(t)
	var lost string
	await.That(t, "a group is made that is lost", func() string {
		r, err := s.try("PUT", "/api/v1/groups/lost", `{}`)
		if err != nil {
			return err.Error()
		}
		lost = r.header.Get("Orrery-Revision")
		return await.Unless(lost != "", "%s", r.raw)
	})
	for n := range 20 {
		s.do("PUT", fmt.Sprint("/api/v1/groups/lost", n), `{}`).want(201)
	}
	lost = s.do("PATCH", "/api/v1/groups/lost", `{"minInstances":1}`).want(200).header.Get("Orrery-Revision")
	s.etcd.Stop()
	if r := s.do("GET", "/api/v1/groups?minRevision="+lost+"0", nil).want(503).is("error.code", "REVISION_NOT_REACHED"); r.header.Get("Retry-After") == "" {
		t.Error("the answer does not say when to ask again")
	}
	s.do("GET", "/livez?minRevision="+lost+"0", nil).want(200) // probes do not wait
	s.etcd.Restore(t, backup)
	s.etcd.Restart(t)
	await.That(t, "etcd has forgotten", func() string {
		return await.Unless(s.do("GET", "/api/v1/groups", nil).want(200).field("total") == 1.0, "it has not")
	})
	now, err := strconv.ParseInt(s.do("GET", "/api/v1/groups", nil, "Orrery-Revision", lost).want(200).is("total", 1).header.Get("Orrery-Revision"), 10, 64)
	if err != nil || now < kept || fmt.Sprint(now) == lost {
		t.Errorf("told of revision %d in place of %s: %v", now, lost, err)
	}
	s.do("PUT", "/api/v1/groups/new", `{}`, "Orrery-Revision", lost).want(201)
}
