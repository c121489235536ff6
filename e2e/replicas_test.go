package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// stream opens the main event stream of a gateway with a ticket. It ends when leave is
// called or the gateway stops.
func stream(t *testing.T, at cluster.Cluster, ticket, lastID string) (events <-chan sse, leave func()) {
	t.Helper()
	resp, leave := open(t, at.API()+"/api/v1/events/stream?ticket="+ticket, lastID)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the stream is refused: status %d", resp.StatusCode)
	}
	return frames(t, resp), leave
}

func TestAnyGatewayServesAnyRequest(t *testing.T) {
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	second, third := cluster.AddGateway(t, c, admin, "second"), cluster.AddGateway(t, c, admin, "third")
	all := []cluster.Cluster{c, second, third}

	t.Run("what one wrote, another reads", func(t *testing.T) {
		for n := range 9 {
			name := fmt.Sprint("g", n)
			made := admin.On(t).Through(all[n%3]).Do("POST", "/api/v1/groups", map[string]any{"name": name, "command": "sleep 1000"}).OK(201)
			rev := made.Header.Get("Orrery-Revision")
			if rev == "" {
				t.Fatal("the answer names no revision")
			}
			admin.On(t).Through(all[(n+1)%3]).Do("GET", "/api/v1/groups/"+name+"?minRevision="+rev, nil).OK(200)
		}
	})
	t.Run("a login and its end", func(t *testing.T) {
		login := cluster.Login(t, second)
		login.Through(third).Do("GET", "/api/v1/auth/me", nil).OK(200)
		login.Through(c).Do("POST", "/api/v1/auth/logout", nil).OK(200)
		for _, at := range all {
			await.That(t, "the end of the login is known", func() string {
				r := login.Through(at).Do("GET", "/api/v1/auth/me", nil)
				return await.Unless(r.Status == 401, "status %d", r.Status)
			})
		}
	})
	t.Run("an instance of one is typed to through another and seen through a third", func(t *testing.T) {
		made := admin.On(t).Through(second).Do("POST", "/api/v1/groups", map[string]any{"name": "talk", "memoryMb": 16, "shutdownGraceSeconds": 1, "command": "cat"}).OK(201)
		started := admin.On(t).Through(third).Do("POST", "/api/v1/groups/talk/start?minRevision="+made.Header.Get("Orrery-Revision"), nil).OK(200)
		admin.On(t).Do("GET", "/api/v1/services/talk-1?minRevision="+started.Header.Get("Orrery-Revision"), nil).OK(200)
		admin.On(t).AwaitState("talk-1", "RUNNING")
		var ticket struct{ Ticket string }
		admin.On(t).Through(c).Do("POST", "/api/v1/services/talk-1/console/ticket", nil).OK(200, &ticket)
		console := "/api/v1/instances/talk-1/console?ticket=" + ticket.Ticket
		resp, _ := open(t, second.API()+console, "")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d", resp.StatusCode)
		}
		events := frames(t, resp)
		admin.On(t).Through(third).Do("POST", "/api/v1/services/talk-1/command", map[string]string{"command": "hello"}).OK(200)
		until(t, events, "what was typed", func(e sse) bool { return e.data == "hello" })
		if again, _ := open(t, third.API()+console, ""); again.StatusCode != http.StatusUnauthorized {
			t.Errorf("a ticket that was used is good at another gateway: status %d", again.StatusCode)
		}
	})
}

// Gateways crash and stop while a client follows events. Each time it continues at another
// gateway.
func TestNoEventIsLostOrToldTwiceWhileGatewaysDie(t *testing.T) {
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	second, third := cluster.AddGateway(t, c, admin, "second"), cluster.AddGateway(t, c, admin, "third")
	begin, enough := make(chan struct{}), make(chan struct{})
	made := make(chan []string, 1)
	go func() { // creates groups through the remaining gateway until enough have been seen
		var names []string
		defer func() { made <- names }()
		<-begin
		for len(names) < 10_000 {
			select {
			case <-enough:
				return
			default:
			}
			name := fmt.Sprint("g", len(names))
			if r, err := admin.Try(t.Context(), "POST", "/api/v1/groups", map[string]any{"name": name}); err != nil || r.Status != 201 {
				return
			}
			names = append(names, name)
		}
	}()
	var got []string
	lastID := ""
	// follow reads more events at a gateway, ends the gateway, and reads the remaining
	// events.
	follow := func(at cluster.Cluster, more int, end func()) {
		t.Helper()
		var ticket struct{ Ticket string }
		admin.Do("POST", "/api/v1/events/ticket", nil).OK(200, &ticket)
		events, leave := stream(t, at, ticket.Ticket, lastID)
		defer leave()
		for until := len(got) + more; ; {
			e, open := <-events
			if !open {
				if end != nil {
					t.Fatalf("the stream ended by itself after %d events", len(got))
				}
				return
			}
			if e.name == "connected" && lastID == "" {
				close(begin)
			}
			if e.id != "" {
				lastID = e.id
			}
			var told struct{ Type, GroupName string }
			if err := json.Unmarshal([]byte(e.data), &told); err != nil || told.Type == "RESYNC_REQUIRED" {
				t.Fatalf("not to be gone on with: %+v, %v", e, err)
			}
			if told.Type == "GROUP_CREATED" {
				got = append(got, told.GroupName)
			}
			if len(got) >= until && end != nil {
				end()
				if end = nil; at == c {
					return
				}
			}
		}
	}
	follow(second, 50, second.Kill)
	follow(third, 50, third.Stop)
	second.Restart(admin)
	follow(second, 50, second.Kill)
	close(enough)
	names := <-made
	follow(c, len(names)-len(got), func() {})
	if !slices.Equal(got, names) {
		t.Errorf("%d groups were made and %d events came, not one for each in turn", len(names), len(got))
	}
}
