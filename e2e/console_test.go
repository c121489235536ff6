package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// console reads a console as server-sent events into a channel. The channel is closed when
// the stream ends.
func console(t *testing.T, c cluster.Cluster, admin *cluster.Client, ref, lastID string) <-chan sse {
	t.Helper()
	resp := openConsole(t, c, admin, ref, lastID)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the console of %s: status %d", ref, resp.StatusCode)
	}
	return frames(t, resp)
}

func openConsole(t *testing.T, c cluster.Cluster, admin *cluster.Client, ref, lastID string) *http.Response {
	t.Helper()
	var ticket struct{ Ticket string }
	admin.Do("POST", "/api/v1/services/"+ref+"/console/ticket", nil).OK(200, &ticket)
	resp, _ := open(t, c.API()+"/api/v1/instances/"+ref+"/console?ticket="+ticket.Ticket, lastID)
	return resp
}

func isEnd(e sse) bool { return e.name == "end" }

func TestAConsoleIsSeenAsItIsWrittenAndTellsTheEnd(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "talk", "memoryMb": 16, "shutdownGraceSeconds": 1, "command": `printf '\033[31mred\033[0m\r\n'; cat`})
	admin.Do("POST", "/api/v1/groups/talk/start", nil).OK(200)
	i := admin.AwaitState("talk-1", "RUNNING")
	events := console(t, c, admin, "talk-1", "")
	seen, _ := until(t, events, "first line", func(e sse) bool { return e.name == "" })
	if seen[0].name != "connected" || seen[len(seen)-1].data != "\x1b[31mred\x1b[0m" || seen[len(seen)-1].id != "14" {
		t.Errorf("%q", seen)
	}
	admin.Do("POST", "/api/v1/services/talk-1/command", map[string]string{"command": `say "one" $HOME \n ;two`}).OK(200)
	seen, _ = until(t, events, "typed line", func(e sse) bool { return e.name == "" })
	last := seen[len(seen)-1]
	if last.data != `say "one" $HOME \n ;two` {
		t.Errorf("%q", seen)
	}
	admin.Do("POST", "/api/v1/services/talk-1/force-stop", nil).OK(200)
	seen, ok := until(t, events, "end", isEnd)
	if end := seen[len(seen)-1]; !ok || !strings.Contains(end.data, `"state":"STOPPED"`) || !strings.Contains(end.data, `"reason":"`) {
		t.Errorf("%q", seen)
	}
	if _, more := <-events; more {
		t.Error("the stream goes on after the end")
	}
	if seen, _ = until(t, console(t, c, admin, i.UID, last.id), "end", isEnd); len(seen) != 2 {
		t.Errorf("who resumes after the last line is shown %q", seen)
	}
	if resp := openConsole(t, c, admin, i.UID, seen[len(seen)-1].id); resp.StatusCode != http.StatusNoContent {
		t.Errorf("who has seen the end gets %d", resp.StatusCode)
	}
}

func TestAConsoleIsResumedAfterEverythingRestarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := cluster.Start(t, cluster.Options{DataDir: dir, KeepInstances: true})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "count", "memoryMb": 16, "shutdownGraceSeconds": 1, "command": `n=0; while read go; do i=0; while [ $i -lt 500 ]; do i=$((i+1)); n=$((n+1)); echo "line $n"; done; done`})
	admin.Do("POST", "/api/v1/groups/count/start", nil).OK(200)
	admin.AwaitState("count-1", "RUNNING")
	var got []string
	lastID := ""
	for round := range 3 {
		events := console(t, c, admin, "count-1", lastID)
		admin.Do("POST", "/api/v1/services/count-1/command", map[string]string{"command": "go"}).OK(200)
		most := fmt.Sprintf("line %d", round*500+499) // the last line is left to the next round
		seen, _ := until(t, events, most, func(e sse) bool { return e.data == most })
		for _, e := range seen {
			if e.name == "" {
				got, lastID = append(got, e.data), e.id
			}
		}
		c.Stop()
		c = cluster.Start(t, cluster.Options{DataDir: dir, KeepInstances: round < 1})
		admin = cluster.Login(t, c)
		await.That(t, "the instance to be known as running", func() string {
			r := admin.Do("GET", "/api/v1/services/count-1", nil)
			return await.Unless(strings.Contains(string(r.Body), `"RUNNING"`) || round >= 2, "%s", r.Body)
		})
		if round == 1 {
			break
		}
	}
	for n, line := range got {
		if want := fmt.Sprintf("line %d", n+1); line != want {
			t.Fatalf("the %d. line is %q", n+1, line)
		}
	}
	if len(got) < 999 {
		t.Errorf("%d lines", len(got))
	}
}

func TestAConsoleIsOpenedByItsOwnTicketOnly(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "talk", "memoryMb": 16, "shutdownGraceSeconds": 1, "command": "echo hi; cat", "minInstances": 2})
	admin.AwaitRunning("talk", 2)
	var own, event struct{ Ticket string }
	admin.Do("POST", "/api/v1/services/talk-1/console/ticket", nil).OK(200, &own)
	admin.Do("POST", "/api/v1/events/ticket", nil).OK(200, &event)
	status := func(path string) int {
		resp, leave := open(t, c.API()+path, "")
		defer leave()
		return resp.StatusCode
	}
	for _, step := range []struct {
		what, path string
		want       int
	}{
		{"an event ticket opens a console, as older clients do it", "/api/v1/services/talk-1/console?ticket=" + event.Ticket, 200},
		{"and once", "/api/v1/services/talk-1/console?ticket=" + event.Ticket, 401},
		{"a console's ticket opens no other", "/api/v1/services/talk-2/console?ticket=" + own.Ticket, 401},
		{"and is used up by that", "/api/v1/services/talk-1/console?ticket=" + own.Ticket, 401},
		{"nobody sees a console without one", "/api/v1/services/talk-1/console", 401},
		{"nor learns what there is", "/api/v1/services/nothing-1/console", 401},
	} {
		if got := status(step.path); got != step.want {
			t.Errorf("%s: %d, want %d", step.what, got, step.want)
		}
	}
}

func TestAConsolesHistoryIsPagedSearchedAndDated(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "talk", "memoryMb": 16, "shutdownGraceSeconds": 1, "command": "seq 1 1000; cat"})
	admin.Do("POST", "/api/v1/groups/talk/start", nil).OK(200)
	admin.AwaitState("talk-1", "RUNNING")
	type page struct {
		Lines []struct {
			TS     *string
			Line   string
			Offset int64
		}
		Truncated bool
		Before    int64
	}
	get := func(query string) (p page) {
		t.Helper()
		admin.Do("GET", "/api/v1/services/talk-1/console/history?"+query, nil).OK(200, &p)
		return p
	}
	await.That(t, "the dated end", func() string {
		p := get("limit=1")
		return await.Unless(len(p.Lines) == 1 && p.Lines[0].Line == "1000" && p.Lines[0].TS != nil && p.Truncated, "%+v", p)
	})
	last := get("limit=2")
	if p := get(fmt.Sprintf("limit=2&before=%d", last.Before)); len(p.Lines) != 2 || p.Lines[1].Line != "998" {
		t.Errorf("the page before: %+v", p)
	}
	if p := get("limit=50&grep=%5E9.9%24"); len(p.Lines) != 10 || p.Lines[0].Line != "909" || p.Truncated {
		t.Errorf("a search: %+v", p)
	}
	if p := get("since=2100-01-01T00:00:00Z"); len(p.Lines) != 0 {
		t.Errorf("of the future: %+v", p)
	}
	for query, want := range map[string]int{"since=yesterday": 400, "grep=%5B": 422, "limit=many": 400} {
		if r := admin.Do("GET", "/api/v1/services/talk-1/console/history?"+query, nil); r.Status != want {
			t.Errorf("%s: %d %s", query, r.Status, r.Body)
		}
	}
}

func TestAServerThatReadsNothingCostsNobodyElseItsConsole(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "deaf", "memoryMb": 16, "shutdownGraceSeconds": 0, "command": "exec sleep 1000"})
	createGroup(t, admin, map[string]any{"name": "talk", "memoryMb": 16, "shutdownGraceSeconds": 0, "command": "cat"})
	for _, group := range []string{"deaf", "talk"} {
		admin.Do("POST", "/api/v1/groups/"+group+"/start", nil).OK(200)
		admin.AwaitState(group+"-1", "RUNNING")
	}
	refused := 0
	for range 100 { // more in a row than the failures an agent may have
		r := admin.Do("POST", "/api/v1/services/deaf-1/command", map[string]string{"command": strings.Repeat("x", 900)})
		switch {
		case r.Status == 409 && strings.Contains(string(r.Body), "does not read its console"):
			refused++
		case r.Status != 200:
			t.Fatalf("after %d refusals: %d %s", refused, r.Status, r.Body)
		}
	}
	if refused < 10 {
		t.Errorf("refused %d times", refused)
	}
	admin.Do("POST", "/api/v1/services/talk-1/command", map[string]string{"command": "hello"}).OK(200)
}
