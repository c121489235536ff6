package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/enforcer/client"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/trust"
)

const secret = "0123456789abcdef0123456789abcdef"

func TestAReplayIsAsked(t *testing.T) {
	server := httptest.NewServer(Handler(func(g fleet.GroupName, q client.ReplayQuestion) (client.Replay, error) {
		if g != "lobby" {
			return client.Replay{}, errs.New(errs.NotFound, "nothing is recorded of group %s", g)
		}
		return client.Replay{Records: 7, Would: client.ReplaySide{Up: q.MaxPlayers}}, nil
	}, trust.BySecret(secret)))
	defer server.Close()
	c := client.New(server.Client(), server.URL, secret)
	got, err := c.Replay(t.Context(), "lobby", client.ReplayQuestion{MaxPlayers: 3})
	if err != nil || got.Records != 7 || got.Would.Up != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.Replay(t.Context(), "other", client.ReplayQuestion{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("of another group: %v", err)
	}
	if _, err := client.New(server.Client(), server.URL, "wrong").Replay(t.Context(), "lobby", client.ReplayQuestion{}); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("with a wrong secret: %v", err)
	}
	for _, body := range []string{"", "{", `{"scale":{}}`} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/groups/lobby/replay", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+secret)
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d", body, resp.StatusCode)
		}
	}
}
