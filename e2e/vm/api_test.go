package vm_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/vm"
	"github.com/orreryhq/orrery/libs/await"
)

// api is a gateway as seen from a shell in the guest.
type api struct {
	t     *testing.T
	m     *vm.Machine
	url   string
	token string
}

// signIn waits until the gateway is ready and logs in with the password from a file.
func signIn(t *testing.T, m *vm.Machine, url, passwordFile string) *api {
	t.Helper()
	a := &api{t: t, m: m, url: url}
	m.Await("a login", func() string {
		out, err := m.Try(fmt.Sprintf(`curl -sS -f %s/api/v1/auth/login -d '{"username":"admin","password":"'$(cat %s)'"}'`, url, passwordFile))
		if err != nil {
			return err.Error()
		}
		var answer struct{ Token string }
		if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Token == "" {
			return out
		}
		a.token = answer.Token
		return ""
	})
	return a
}

// try sends a request. A body is sent as JSON.
func (a *api) try(method, path string, body, into any) error {
	script := fmt.Sprintf(`curl -sS --fail-with-body -m 60 -X %s '%s%s' -H 'Authorization: Bearer %s'`, method, a.url, path, a.token)
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		script += " -d '" + strings.ReplaceAll(string(b), "'", `'\''`) + "'"
	}
	out, err := a.m.Try(script)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

func (a *api) do(method, path string, body, into any) {
	a.t.Helper()
	if err := a.try(method, path, body, into); err != nil {
		a.t.Fatal(err)
	}
}

// limits are the fields of a node's record about enforced limits.
type limits struct {
	By   string
	Held []string
	Why  string
}

func (a *api) limits(node string) limits {
	a.t.Helper()
	var n struct{ Limits limits }
	a.do("GET", "/api/v1/nodes/"+node, nil, &n)
	return n.Limits
}

// instance are the fields of an instance that the scenarios read.
type instance struct {
	ID, UID, Node, State, Reason, Message string
	Port, PID                             int
	ExitCode                              *int
}

// ended reports whether the run in the record is over.
func (i instance) ended() bool {
	return i.State == "STOPPED" || i.State == "CRASHED" || i.State == "FAILED"
}

func (a *api) instances(group string) (all []instance, err error) {
	var page struct{ Data []instance }
	err = a.try("GET", "/api/v1/services?all=true&pageSize=100&group="+group, nil, &page)
	return page.Data, err
}

// running waits until exactly n instances of a group run.
func (a *api) running(group string, n int) map[string]instance {
	a.t.Helper()
	var found map[string]instance
	a.m.Await(fmt.Sprintf("%d running instances of %s", n, group), func() string {
		all, err := a.instances(group)
		if err != nil {
			return err.Error()
		}
		found = map[string]instance{}
		others := 0
		for _, i := range all {
			switch {
			case i.State == "RUNNING":
				found[i.ID] = i
			case !i.ended():
				others++
			}
		}
		return await.Unless(len(found) == n && others == 0, "%+v", all)
	})
	return found
}

// same waits until the same instances run in the same processes as before.
func (a *api) same(group string, before map[string]instance) {
	a.t.Helper()
	for id, now := range a.running(group, len(before)) {
		if was := before[id]; now.UID != was.UID || now.PID != was.PID || now.Port != was.Port {
			a.t.Errorf("%s was %+v and is %+v: it did not run on", id, was, now)
		}
	}
}

// only returns the only element of a map.
func only(all map[string]instance) (one instance) {
	for _, i := range all {
		one = i
	}
	return one
}

// awaitEnd waits until an instance's process is gone from a guest.
func awaitEnd(m *vm.Machine, i instance) {
	m.Await("the end of "+i.ID, func() string {
		out, err := m.Try(fmt.Sprintf("kill -0 %d 2>/dev/null && echo lives || echo gone", i.PID))
		return await.Unless(err == nil && strings.TrimSpace(out) == "gone", "%s %v", out, err)
	})
}
