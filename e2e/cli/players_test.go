package cli_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// plugins returns the plugins of the first instances of groups.
func (u *user) plugins(c cluster.Cluster, groups map[string]string) map[string]*cluster.Plugin {
	u.t.Helper()
	dir := cluster.OpenDir(u.t)
	all := map[string]*cluster.Plugin{}
	for name, more := range groups {
		u.given(strings.Replace(group(name, 1), "exec cat", cluster.WritesToken(dir, name)+"; exec cat", 1)+more, "apply", "--wait", "-f", "-")
		all[name] = cluster.PluginOf(u.t, c, dir, name)
	}
	return all
}

func testPlayers(t *testing.T, c cluster.Cluster) {
	const steve = "069a79f4-44e9-4726-a5be-fca90e38aaf5"
	u := newUser(t)
	u.logIn(c)
	all := u.plugins(c, map[string]string{"hub": "", "game": "", "edge": "platform: VELOCITY\n"})
	u.refused(4, "orrery get players", "player", "show", "Steve")
	all["hub"].Call("POST", "/api/plugin/player-join", `{"uuid":"`+steve+`","name":"Steve"}`, nil)
	all["edge"].Call("POST", "/api/proxy/player-join", `{"uuid":"`+steve+`","name":"Steve","instanceId":"hub-1","group":"hub"}`, nil)
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
	u.refused(1, "must be 1 to 1024 bytes", "player", "message", "Steve", "a\x07b")
	if got := u.ok("player", "message", "Steve", "hello there"); !strings.Contains(got, "the message to player Steve waits for their proxy") {
		t.Errorf("message prints %q", got)
	}
	await.That(t, "the message at the proxy", func() string {
		var messages []struct{ Content string }
		all["edge"].Call("GET", "/api/proxy/messages/pending", "", &messages)
		return await.Unless(len(messages) == 1 && messages[0].Content == "hello there", "%+v", messages)
	})
	// The proxy carries it out.
	for i, to := range [][]string{{"--to", "game-1"}, {"--group", "game"}} {
		if got := u.ok(append([]string{"player", "transfer", "Steve"}, to...)...); !strings.Contains(got, "player Steve is being sent to game-1") {
			t.Errorf("transfer %v prints %q", to, got)
		}
		var pending []struct{ PlayerUUID, TargetInstanceID string }
		await.That(t, "the transfer at the proxy", func() string {
			all["edge"].Call("GET", "/api/proxy/pending-transfers", "", &pending)
			return await.Unless(len(pending) == 1 && pending[0].PlayerUUID == steve && pending[0].TargetInstanceID == "game-1", "%+v", pending)
		})
		if i == 0 {
			all["edge"].Call("POST", "/api/proxy/transfer-ack/"+steve, "{}", nil)
		}
	}
	all["hub"].Call("POST", "/api/plugin/player-leave", `{"uuid":"`+steve+`"}`, nil)
	all["game"].Call("POST", "/api/plugin/player-join", `{"uuid":"`+steve+`","name":"Steve"}`, nil)
	await.That(t, "the player on the other server", func() string {
		got := u.ok("get", "player", "Steve", "-o", "jsonpath=currentInstance")
		return await.Unless(got == "game-1\n", "%q", got)
	})
}
