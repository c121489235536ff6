package apigateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/libs/await"
)

// stream opens an event stream with the site's token, or with a ticket if it has none. The returned
// text collects its events.
func (s *site) stream(path string) *await.Text {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s", path, resp.Status)
	}
	said, read := new(await.Text), make(chan struct{})
	go func() {
		defer close(read)
		_, err := io.Copy(said, resp.Body)
		fmt.Fprintf(said, "\nended: %v", err)
	}()
	s.t.Cleanup(func() { _ = resp.Body.Close(); <-read })
	await.That(s.t, "the stream has begun", func() string {
		return await.Unless(strings.Contains(said.String(), "connected"), "%s", said)
	})
	return said
}

// socketOf attaches to a console.
func (s *site) socketOf(id string) *websocket.Conn {
	s.t.Helper()
	conn, _, err := websocket.Dial(s.t.Context(), s.url+"/api/v1/instances/"+id+"/attach", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, HTTPHeader: http.Header{"Authorization": {"Bearer " + s.token}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func TestStreamsEndWhenPermissionIsLost(t *testing.T) {
	t.Parallel()
	a := newSite(t)
	b := second(t, a)
	a.group("lobby", nil)
	id := string(a.start("lobby"))
	stays := b.stream("/api/v1/events/stream")
	for _, c := range []struct{ what, method, path, body string }{
		{"another role", "PATCH", "/api/v1/users/{user}", `{"role":"DEAF"}`},
		{"another password", "PATCH", "/api/v1/users/{user}", `{"password":"battery staple"}`},
		{"a deleted user", "DELETE", "/api/v1/users/{user}", ``},
		{"fewer permissions", "PATCH", "/api/v1/roles/{role}", `{"permissions":["groups.view"]}`},
		{"a logout", "POST", "/api/v1/auth/logout", ``},
		{"a deleted token", "DELETE", "/api/v1/api-tokens/{token}", ``},
	} {
		t.Run(c.what, func(t *testing.T) {
			a, b := *a, *b
			a.t, b.t = t, t
			name := strings.ReplaceAll(c.what, " ", "-")
			role := strings.ToUpper(strings.ReplaceAll(c.what, " ", "_"))
			a.do("POST", "/api/v1/roles", map[string]any{"name": role, "permissions": []string{"events.stream", "instances.console", "tokens.create"}}).want(201)
			a.do("POST", "/api/v1/roles", `{"name":"DEAF","permissions":["groups.view"]}`)
			a.do("POST", "/api/v1/users", map[string]any{"username": name, "password": "correct horse", "role": role}).want(201)
			login := a.as(a.login(name, "correct horse"))
			opener, by, token := login, &a, ""
			switch c.what {
			case "a logout":
				by = login
			case "a deleted token":
				var made *reply
				opener, made = login.key(`{"name":"x"}`)
				token = fmt.Sprint(made.field("id"))
			}
			there := b.as(opener.token)
			eventually(t, there, "GET", "/api/v1/auth/me", 200)
			events, console := there.stream("/api/v1/events/stream"), there.stream("/api/v1/instances/"+id+"/console")
			ticket := fmt.Sprint(opener.do("POST", "/api/v1/events/ticket", nil).want(200).field("ticket"))
			unused := fmt.Sprint(opener.do("POST", "/api/v1/events/ticket", nil).want(200).field("ticket"))
			ticketed := b.as("").stream("/api/v1/events/stream?ticket=" + ticket)
			attached := there.socketOf(id)

			path := strings.NewReplacer("{user}", name, "{role}", role, "{token}", token).Replace(c.path)
			if r := by.do(c.method, path, c.body); r.status >= 300 {
				t.Fatal(r.raw)
			}
			for what, said := range map[string]*await.Text{"of events": events, "of a console": console, "with a ticket": ticketed} {
				await.That(t, "the stream "+what+" is cut", func() string {
					text := said.String()
					return await.Unless(strings.Contains(text, "cut off: ") && strings.Contains(text, "ended: "), "%s", text)
				})
			}
			var closed websocket.CloseError
			for err := error(nil); ; _, _, err = attached.Read(t.Context()) {
				if err == nil {
					continue
				}
				if !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation || !strings.Contains(closed.Reason, "cut off: ") {
					t.Errorf("the attached console ended with %v", err)
				}
				break
			}
			if r := b.as("").do("GET", "/api/v1/events/stream?ticket="+unused, nil); r.status != 401 && r.status != 403 {
				t.Errorf("a ticket is good still: %d", r.status)
			}
		})
	}
	a.group("another", nil)
	await.That(t, "who may see events sees them", func() string {
		return await.Unless(strings.Contains(stays.String(), "another") && !strings.Contains(stays.String(), "ended"), "%s", stays)
	})
}
