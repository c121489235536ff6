package apigateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// letters returns the messages that a proxy should deliver.
func (i *inside) letters() []any {
	i.t.Helper()
	list, ok := i.do("GET", "/api/proxy/messages/pending", nil).want(200).body.([]any)
	if !ok {
		i.t.Fatal("no list")
	}
	return list
}

// send sends a message to steve.
func (i *inside) send(content string) *reply {
	i.t.Helper()
	return i.say("/api/plugin/message/send", map[string]string{
		"fromUuid": "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6", "fromName": "Alex", "toUuid": string(steve), "toName": "Steve", "content": content,
	})
}

func TestAReplyNamesItsMessageByATextOrANumber(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.group("edge", map[string]any{"platform": "VELOCITY"})
	lobby, edge := s.inside("lobby", "node-1"), s.inside("edge", "node-1")
	s.publish("node-1", steve, players.Presence{By: edge.id, Proxy: true})
	reply := func(to string) *reply {
		return lobby.say("/api/plugin/message/send", fmt.Sprintf(`{"fromUuid":%q,"fromName":"Alex","toUuid":%q,"toName":"Steve","content":%q,"replyToId":%s}`, alex, steve, to, to))
	}
	wanted := map[string]any{`9007199254740993`: "9007199254740993", `-1`: "-1", `"01J9"`: "01J9", `null`: nil, `""`: nil}
	for sent := range wanted {
		reply(sent).want(201)
	}
	for _, l := range edge.letters() {
		one, _ := l.(map[string]any)
		if sent, _ := one["content"].(string); one["replyToId"] != wanted[sent] {
			t.Errorf("replyToId %s is shown as %v, want %v", sent, one["replyToId"], wanted[sent])
		}
		delete(wanted, one["content"].(string))
	}
	if len(wanted) != 0 {
		t.Errorf("not delivered: %v", wanted)
	}
	for _, bad := range []string{`true`, `{}`, `[1]`} {
		reply(bad).want(400).naming("replyToId")
	}
	reply(`"` + strings.Repeat("x", players.MaxReplyTo+1) + `"`).want(400).naming("replyToId")
}

func TestServersDoNotSpeakForProxies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	id, _ := lobby.send("hello").want(201).field("id").(string)
	before := s.revision()
	for _, path := range []string{"/api/proxy/messages/pending", "/api/proxy/pending-transfers"} {
		lobby.do("GET", path, nil).want(403).naming("VELOCITY")
	}
	for _, path := range []string{"/api/proxy/messages/" + id + "/ack", "/api/proxy/transfer-ack/" + string(steve)} {
		lobby.say(path, nil).want(403).naming("VELOCITY")
	}
	lobby.say("/api/proxy/player-join", `{"uuid":"`+string(steve)+`","name":"Steve"}`).want(403).naming("VELOCITY")
	if keys := s.moved(before); len(keys) > 0 {
		t.Errorf("what was refused wrote something: %v", keys)
	}
	s.do("GET", "/api/v1/players/"+string(steve), nil).want(404)
}

func TestAMessageWaitsForItsPlayersProxyUntilThatHasIt(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.node("node-1", fleet.Resources{MemoryMiB: 4096})
	a.group("lobby", nil)
	a.group("edge", map[string]any{"platform": "VELOCITY"})
	lobby, edge, other := a.inside("lobby", "node-1"), a.inside("edge", "node-1"), a.inside("edge", "node-1")
	id, _ := lobby.send("hello").want(201).is("status", "QUEUED").field("id").(string)
	there := edge.on(b)
	there.soon("GET", "/api/proxy/messages/pending", 200)
	if got := there.letters(); len(got) != 0 {
		t.Errorf("the player is not there: %v", got)
	}
	a.publish("node-1", steve, players.Presence{By: edge.id, Proxy: true})
	await.That(t, "the message at the other gateway", func() string { return await.Unless(len(there.letters()) == 1, "%v", there.letters()) })
	one, _ := there.letters()[0].(map[string]any)
	if one["id"] != id || one["content"] != "hello" || one["fromName"] != "Alex" || one["toUuid"] != string(steve) || one["replyToId"] != nil || one["createdAt"] == nil {
		t.Errorf("%v", one)
	}
	if got := other.letters(); len(got) != 0 {
		t.Errorf("another proxy is told %v", got)
	}
	a.publish("node-1", steve, players.Presence{By: other.id, Proxy: true}) // the player came back through the other proxy
	await.That(t, "the message at the proxy the player came through", func() string { return await.Unless(len(other.letters()) == 1, "%v", other.letters()) })
	other.say("/api/proxy/messages/none/ack", nil).want(404)
	edge.say("/api/proxy/messages/"+id+"/ack", nil).want(404)
	if got := other.letters(); len(got) != 1 {
		t.Errorf("another proxy has taken it as delivered: %v", got)
	}
	other.say("/api/proxy/messages/"+id+"/ack", nil).want(200).is("status", "ok")
	if got := other.letters(); len(got) != 0 {
		t.Errorf("once it was delivered: %v", got)
	}
	if audit := a.do("GET", "/api/v1/audit?pageSize=500", nil).want(200).raw; strings.Contains(audit, "hello") {
		t.Error("the audit has what players tell each other")
	}
}

func TestAServerSendsNoMessageOfAPlayerWhoIsOnAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	here, there := s.inside("lobby", "node-1"), s.inside("lobby", "node-1")
	says := func(i *inside) *reply {
		return i.say("/api/plugin/message/send", `{"fromUuid":"`+string(steve)+`","toUuid":"61699b2e-d327-4a01-9f1e-0ea8c3f06bc6","content":"hello"}`)
	}
	here.say("/api/plugin/player-join", `{"uuid":"`+string(steve)+`","name":"Steve"}`).want(200)
	says(here).want(201)
	says(there).want(409).naming("on another server")
	s.publish("node-1", steve, players.Presence{By: here.id, Said: 1}, players.Presence{By: there.id, Said: 1})
	says(here).want(201) // during the player's move, both servers report
	says(there).want(201)
}

func TestMessagesAreLimitedAndValidated(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	lobby := s.inside("lobby", "node-1")
	for _, content := range []string{"", "a\nb", strings.Repeat("x", players.MaxMessage+1)} {
		lobby.send(content).want(400).naming("content")
	}
	lobby.say("/api/plugin/message/send", `{"fromUuid":"`+string(steve)+`","toUuid":"x","content":"hello"}`).want(400).naming("toUuid must be a UUID")
	lobby.say("/api/plugin/message/send", `{"toUuid":"`+string(steve)+`","content":"hello"}`).want(400).naming("fromUuid must be a UUID")
	for n := range players.MaxMessagesTo {
		lobby.send(fmt.Sprint("message ", n)).want(201)
	}
	lobby.send("one more").want(409)
}

func TestAUserSendsAMessageToAPlayer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.group("lobby", nil)
	s.group("edge", map[string]any{"platform": "VELOCITY"})
	lobby, edge := s.inside("lobby", "node-1"), s.inside("edge", "node-1")
	path := "/api/v1/players/" + string(steve) + "/message"
	s.do("POST", path, `{"content":"hello"}`).want(404)
	s.publish("node-1", steve, players.Presence{By: lobby.id})
	s.do("POST", path, `{"content":"hello"}`).want(409).naming("without a proxy")
	s.publish("node-1", steve, players.Presence{By: lobby.id}, players.Presence{By: edge.id, Proxy: true, On: lobby.id})
	for _, bad := range []string{`""`, `"a\u0007b"`, `"` + strings.Repeat("x", players.MaxMessage+1) + `"`} {
		s.do("POST", path, `{"content":`+bad+`}`).want(422).naming("content must be 1 to 1024 bytes")
	}
	id := s.do("POST", path, `{"content":"the server restarts at four"}`).want(201).is("status", "QUEUED").field("id")
	list := edge.letters()
	if len(list) != 1 {
		t.Fatalf("%d messages wait, want 1", len(list))
	}
	one, _ := list[0].(map[string]any)
	if one["id"] != id || one["content"] != "the server restarts at four" || one["fromName"] != "Server" || one["toUuid"] != string(steve) {
		t.Errorf("the proxy gets %v", one)
	}
	s.becomes("player.message", 1)
	s.user("watcher", "VIEWER").do("POST", path, `{"content":"hello"}`).want(403)
}
