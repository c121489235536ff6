package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// server calls the API as the plugin of an instance would, with the token of the instance.
type server struct {
	t        *testing.T
	api      string
	token    string
	sequence int
}

// servers returns the first instances of groups, which write their tokens into a directory.
func (u *user) servers(c cluster.Cluster, groups map[string]string) map[string]*server {
	u.t.Helper()
	dir := u.t.TempDir()
	all := map[string]*server{}
	for name, more := range groups {
		writes := fmt.Sprintf("echo $ORRERY_TOKEN >%s/%s; exec cat", dir, name)
		u.given(strings.Replace(group(name, 1), "exec cat", writes, 1)+more, "apply", "--wait", "-f", "-")
		await.That(u.t, "the token of "+name, func() string {
			token, err := os.ReadFile(filepath.Join(dir, name))
			all[name] = &server{t: u.t, api: c.API(), token: strings.TrimSpace(string(token))}
			return await.Unless(strings.HasSuffix(string(token), "\n"), "%q, %v", token, err)
		})
	}
	return all
}

// call calls the API and decodes the answer into a value, unless that is nil.
func (s *server) call(method, path, body string, into any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(cluster.Bounded(s.t), method, s.api+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	s.sequence++
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("X-Prexor-Sequence", fmt.Sprint(s.sequence))
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		s.t.Fatalf("%s %s: status %d", method, path, resp.StatusCode)
	}
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			s.t.Fatal(err)
		}
	}
}

func testPlayers(t *testing.T, c cluster.Cluster) {
	const steve = "069a79f4-44e9-4726-a5be-fca90e38aaf5"
	u := newUser(t)
	u.logIn(c)
	all := u.servers(c, map[string]string{"hub": "", "game": "", "edge": "platform: VELOCITY\n"})
	u.refused(4, "orrery get players", "player", "show", "Steve")
	all["hub"].call("POST", "/api/plugin/player-join", `{"uuid":"`+steve+`","name":"Steve"}`, nil)
	all["edge"].call("POST", "/api/proxy/player-join", `{"uuid":"`+steve+`","name":"Steve","instanceId":"hub-1","group":"hub"}`, nil)
	await.That(t, "the player with its proxy", func() string {
		got := u.run("", "get", "players", "--no-headers", "--filter", "currentInstance=hub-1,proxyInstance=edge-1", "-o", "name")
		return await.Unless(got.stdout == "Steve\n", "%+v", got)
	})
	for _, command := range [][]string{{"describe", "player", "Steve"}, {"describe", "player", steve}, {"player", "show", "Steve", "-o", "wide"}, {"get", "player", "Steve", "-o", "wide"}} {
		if got := u.ok(command...); !strings.Contains(got, "hub-1") || !strings.Contains(got, "edge-1") || !strings.Contains(got, steve) {
			t.Errorf("%s prints\n%s", strings.Join(command, " "), got)
		}
	}
	u.refused(4, "did you mean Steve?", "player", "show", "Stefe")
	u.refused(4, "game-2", "player", "transfer", "Steve", "--to", "game-2")
	u.refused(4, "game", "player", "transfer", "Steve", "--group", "gaem")
	u.refused(2, "either --to or --group", "player", "transfer", "Steve")
	// The proxy carries it out.
	for i, to := range [][]string{{"--to", "game-1"}, {"--group", "game"}} {
		if got := u.ok(append([]string{"player", "transfer", "Steve"}, to...)...); !strings.Contains(got, "player Steve is being sent to game-1") {
			t.Errorf("transfer %v prints %q", to, got)
		}
		var pending []struct{ PlayerUUID, TargetInstanceID string }
		await.That(t, "the transfer at the proxy", func() string {
			all["edge"].call("GET", "/api/proxy/pending-transfers", "", &pending)
			return await.Unless(len(pending) == 1 && pending[0].PlayerUUID == steve && pending[0].TargetInstanceID == "game-1", "%+v", pending)
		})
		if i == 0 {
			all["edge"].call("POST", "/api/proxy/transfer-ack/"+steve, "{}", nil)
		}
	}
	all["hub"].call("POST", "/api/plugin/player-leave", `{"uuid":"`+steve+`"}`, nil)
	all["game"].call("POST", "/api/plugin/player-join", `{"uuid":"`+steve+`","name":"Steve"}`, nil)
	await.That(t, "the player on the other server", func() string {
		got := u.ok("get", "player", "Steve", "-o", "jsonpath=currentInstance")
		return await.Unless(got == "game-1\n", "%q", got)
	})
}
