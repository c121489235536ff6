package apigateway

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/apigateway/internal/compat/commandapi"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestACommandIsAnsweredWithAllItSays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	r := s.do("POST", "/api/commands/execute", `{"command":"instance create lobby 3"}`).want(200).is("success", true).is("error", nil)
	if out, _ := r.field("output").([]any); len(out) != 3 {
		t.Errorf("said %s", r.raw)
	}
	list := s.do("POST", "/api/commands/execute", `{"command":"instances"}`).want(200)
	for _, name := range []string{"lobby-1", "lobby-2", "lobby-3"} {
		list.naming(name)
	}
	s.do("POST", "/api/cluster/nodes/node-1/command", `{"command":"node info"}`).want(200).naming("node-1").is("success", true)
	s.do("POST", "/api/cluster/nodes/node-1", `{"command":"node resources"}`).want(200).naming("4096")
	s.do("POST", "/api/cluster/nodes/node-9/command", `{"command":"node info"}`).want(404)
	audit := s.do("GET", "/api/v1/audit", nil).want(200)
	audit.naming("command.execute").naming("instance create lobby 3").naming("group.start")
	if strings.Contains(audit.raw, "node info") {
		t.Error("what only looks is noted, too")
	}
}

func TestACommandThatIsNotDoneSaysWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	before := s.revision()
	for command, why := range map[string]string{
		"instnce list":         "did you mean instance",
		"instance stop x":      "there is no instance x",
		"instance create lob":  "there is no group lob",
		`instance list \"`:     "quote",
		"cluster shutdown now": "cluster shutdown confirm",
		"cluster status now":   "too much",
		"stop":                 "no console to leave",
	} {
		r := s.do("POST", "/api/commands/execute", `{"command":"`+command+`"}`).want(200).is("success", false).naming(why)
		if out, _ := r.field("output").([]any); len(out) == 0 || out[len(out)-1] != r.field("error") {
			t.Errorf("who reads the output alone is not told: %s", r.raw)
		}
	}
	for _, body := range []string{``, `{}`, `{"command":""}`, `{"command":"  "}`, `{"command":1}`, `[]`} {
		s.do("POST", "/api/commands/execute", body).want(400)
	}
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("what was not done wrote something: %v", keys)
	}
	viewer := s.user("vera", "VIEWER")
	before = s.revision()
	viewer.do("POST", "/api/commands/execute", `{"command":"instance list"}`).want(200).is("success", true)
	viewer.do("POST", "/api/commands/execute", `{"command":"instance create lobby"}`).want(403).naming("groups.start")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("a refused command wrote something: %v", keys)
	}
}

// says sends a command and reads until a line contains a text.
func (s *site) says(conn *websocket.Conn, command, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), await.Patience)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, []byte(command)); err != nil {
		s.t.Fatalf("%s: %v", command, err)
	}
	for {
		_, line, err := conn.Read(ctx)
		if err != nil {
			s.t.Fatalf("%s: %v before %q was said", command, err, text)
		}
		if strings.Contains(string(line), text) {
			return
		}
	}
}

// ends reads until the console closes and returns the close status.
func (s *site) ends(conn *websocket.Conn) (websocket.StatusCode, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), await.Patience)
	defer cancel()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			return websocket.CloseStatus(err), err.Error()
		}
	}
}

func TestAConsoleRunsWhatItIsSentLineByLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	conn, _, err := s.dial("/api/console", http.Header{"Authorization": {"Bearer " + s.token}})
	if err != nil {
		t.Fatal(err)
	}
	s.says(conn, "instance create lobby", "is being created")
	s.says(conn, "instances\r\n", "lobby-1")
	s.says(conn, "hlep", "did you mean help?")
	s.says(conn, "two\nlines", "control characters")
	s.says(conn, "config list", "lobby")
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("exit")); err != nil {
		t.Fatal(err)
	}
	if status, why := s.ends(conn); status != websocket.StatusNormalClosure {
		t.Errorf("closed with %s", why)
	}
}

func TestAConsoleCompletesALineThatEndsInATab(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.start("lobby")
	viewer := s.user("vera", "VIEWER")
	for _, c := range []struct {
		who         *site
		typed, want string
	}{
		{s, "instance sto\t", "instance sto\nstop"},
		{s, "instance stop lob\t", "instance stop lob\nlobby-1"},
		{viewer, "instance stop lob\t", "instance stop lob\n"},
		{viewer, "instance info lob\t", "instance info lob\nlobby-1"},
		{viewer, "two\nlines\t", "a line that is to be completed must not have line breaks in it"},
	} {
		conn, _, err := s.dial("/api/console", http.Header{"Authorization": {"Bearer " + c.who.token}})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(c.typed)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		_, got, err := conn.Read(ctx)
		cancel()
		if err != nil || string(got) != c.want {
			t.Errorf("%q is completed with %q, %v, want %q", c.typed, got, err, c.want)
		}
		s.says(conn, "instance list", "lobby-1") // the line was not run, but later ones are
	}
	s.do("GET", "/api/v1/services/lobby-1", nil).want(200).is("state", "SCHEDULED")
}

func TestAConsoleIsOpenedByHeaderTicketOrSubprotocol(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ticket := func() string {
		return s.do("POST", "/api/console/ticket", nil).want(200).field("ticket").(string)
	}
	used := ticket()
	for name, open := range map[string]func() (*websocket.Conn, *http.Response, error){
		"ticket in the query": func() (*websocket.Conn, *http.Response, error) { return s.dial("/api/console?ticket="+used, nil) },
		"ticket as subprotocol": func() (*websocket.Conn, *http.Response, error) {
			return s.dial("/api/console", nil, "orrery.ticket", ticket())
		},
		"token as subprotocol": func() (*websocket.Conn, *http.Response, error) {
			return s.dial("/api/console", nil, "orrery.bearer", s.token)
		},
	} {
		conn, resp, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := resp.Header.Get("Sec-WebSocket-Protocol"); strings.HasPrefix(got, s.token) || strings.Contains(name, "subprotocol") && !strings.HasPrefix(got, "orrery.") {
			t.Errorf("%s: answered with the subprotocol %q", name, got)
		}
		s.says(conn, "help", "cluster status")
	}
	events := s.do("POST", "/api/v1/events/ticket", nil).want(200).field("ticket").(string)
	for name, open := range map[string]func() (*websocket.Conn, *http.Response, error){
		"nothing":            func() (*websocket.Conn, *http.Response, error) { return s.dial("/api/console", nil) },
		"a used ticket":      func() (*websocket.Conn, *http.Response, error) { return s.dial("/api/console?ticket="+used, nil) },
		"a ticket of events": func() (*websocket.Conn, *http.Response, error) { return s.dial("/api/console?ticket="+events, nil) },
		"a bad token": func() (*websocket.Conn, *http.Response, error) {
			return s.dial("/api/console", nil, "orrery.bearer", "x")
		},
		"a bare token": func() (*websocket.Conn, *http.Response, error) { return s.dial("/api/console", nil, s.token) },
	} {
		if _, resp, err := open(); err == nil || resp == nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %v %v", name, resp, err)
		}
	}
}

func TestAConsoleEndsWithTheTokenThatOpenedIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["groups.view"]}`).want(201)
	s.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"R"}`).want(201)
	bob := s.as(s.login("bob", "correct horse"))
	conn, _, err := bob.dial("/api/console", nil, "orrery.bearer", bob.token)
	if err != nil {
		t.Fatal(err)
	}
	bob.says(conn, "configs", "there are no configurations")
	bob.says(conn, "instances", "instances.view")
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":["instances.view"]}`).want(200)
	bob.says(conn, "instances", "there are no instances")
	bob.says(conn, "configs", "groups.view")
	bob.do("POST", "/api/v1/auth/logout", nil).want(200)
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("instances")); err != nil {
		t.Fatal(err)
	}
	if status, why := bob.ends(conn); status != websocket.StatusPolicyViolation || !strings.Contains(why, "log in again") {
		t.Errorf("closed with %s", why)
	}
}

func TestConsoleNeedsACommandPermission(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/roles", `{"name":"R","permissions":["events.view"]}`).want(201)
	eve := s.user("eve", "R")
	ticket := func(want int) *reply { return eve.do("POST", "/api/console/ticket", nil).want(want) }
	ticket(403)
	opens := func(path string, protocols ...string) int {
		t.Helper()
		_, resp, err := s.dial(path, nil, protocols...)
		if resp == nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	if got := opens("/api/console", "orrery.bearer", eve.token); got != http.StatusForbidden {
		t.Errorf("without a command: %d", got)
	}
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":["events.view","groups.view"]}`).want(200)
	good, late := ticket(200).field("ticket").(string), ticket(200).field("ticket").(string)
	if got := opens("/api/console?ticket=" + good); got != http.StatusSwitchingProtocols {
		t.Errorf("with one: %d", got)
	}
	s.do("PATCH", "/api/v1/roles/R", `{"permissions":["events.view"]}`).want(200)
	if got := opens("/api/console?ticket=" + late); got != http.StatusForbidden {
		t.Errorf("without it again: %d", got)
	}
}

func TestOneUserTakesNoMoreThanHalfOfTheConsoles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	viewer := s.user("vera", "VIEWER")
	for range commandapi.DefaultMaxConsoles / 2 {
		if _, _, err := viewer.dial("/api/console", nil, "orrery.bearer", viewer.token); err != nil {
			t.Fatal(err)
		}
	}
	_, resp, err := viewer.dial("/api/console", nil, "orrery.bearer", viewer.token)
	if err == nil || resp == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "5" {
		t.Errorf("one more than half of them: %v, %v", resp, err)
	}
	conn, _, err := s.dial("/api/console", nil, "orrery.bearer", s.token)
	if err != nil {
		t.Fatalf("one of somebody else's: %v", err)
	}
	s.says(conn, "help", "cluster status")
}

func TestATicketOfAScopedTokenMayNoMoreThanTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	made := s.do("POST", "/api/commands/execute", `{"command":"key create look PUBLIC"}`).want(200).is("success", true)
	out := made.field("output").([]any)
	key := s.as(out[len(out)-1].(string))
	ticket := key.do("POST", "/api/console/ticket", nil).want(200).field("ticket").(string)
	conn, _, err := key.dial("/api/console?ticket="+ticket, nil)
	if err != nil {
		t.Fatal(err)
	}
	key.says(conn, "configs", "there are no configurations")
	key.says(conn, "config create x process sleep", "groups.create")
	s.do("POST", "/api/commands/execute", `{"command":"key delete look"}`).want(200).is("success", true)
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("configs")); err != nil {
		t.Fatal(err)
	}
	if status, why := key.ends(conn); status != websocket.StatusPolicyViolation {
		t.Errorf("closed with %s", why)
	}
}

func TestAConsoleEndsWithTheGatewayAndSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	conn, _, err := s.dial("/api/console", http.Header{"Authorization": {"Bearer " + s.token}})
	if err != nil {
		t.Fatal(err)
	}
	s.says(conn, "help", "cluster status")
	s.stop()
	if status, why := s.ends(conn); status != websocket.StatusGoingAway {
		t.Errorf("closed with %s", why)
	}
}
