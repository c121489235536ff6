package e2e_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// saysWith returns a shell command that posts a body to the API from inside an instance,
// with the instance's own token.
func saysWith(path string, sequence int, body string) string {
	return fmt.Sprintf(`exec 3<>/dev/tcp/$CLOUD_CONTROLLER_HOST/$CLOUD_CONTROLLER_PORT; printf 'POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n`+
		`Authorization: Bearer %%s\r\nX-Prexor-Sequence: %d\r\nContent-Length: %d\r\n\r\n%s' $ORRERY_TOKEN >&3; head -1 <&3; `, path, sequence, len(body), body)
}

func TestPlayersAreWhereTheirServersTellAndGoWithThem(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	const steve, alex = "069a79f4-44e9-4726-a5be-fca90e38aaf5", "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6"
	createGroup(t, admin, map[string]any{
		"name": "own", "memoryMb": 32, "minInstances": 1, "shutdownGraceSeconds": 1, "readiness": map[string]any{"type": "heartbeat"},
		"command": `read line; ` + saysWith("/api/plugin/ready", 1, "") + saysWith("/api/plugin/player-join", 2, `{"uuid":"`+steve+`","name":"Steve"}`) +
			saysWith("/api/plugin/player-join", 3, `{"uuid":"`+alex+`","name":"Alex"}`) + `read line; ` +
			saysWith("/api/plugin/player-leave", 4, `{"uuid":"`+alex+`"}`) + `exec sleep 1000`,
	})
	var i cluster.Instance
	await.That(t, "an instance that starts", func() string {
		all := admin.Instances("own")
		if len(all) != 1 || all[0].State != "STARTING" {
			return fmt.Sprintf("%+v", all)
		}
		i = all[0]
		return ""
	})
	admin.Do("POST", "/api/v1/services/"+i.ID+"/command", map[string]string{"command": "go"}).OK(200)
	admin.AwaitState(i.UID, "RUNNING")
	type list struct {
		Total int
		Data  []struct{ ID, Name, CurrentInstance string }
	}
	awaitPlayers := func(n int) (all list) {
		t.Helper()
		await.That(t, fmt.Sprint(n, " players"), func() string {
			all = list{}
			admin.Do("GET", "/api/v1/players", nil).OK(200, &all)
			count := figuresOf(admin, "/api/v1/services/"+i.ID).PlayerCount
			return await.Unless(all.Total == n && count == n, "%+v, and the instance has %d", all, count)
		})
		return all
	}
	if all := awaitPlayers(2); all.Data[0].Name != "Steve" || all.Data[0].ID != steve || all.Data[0].CurrentInstance != i.ID {
		t.Errorf("%+v", all)
	}
	await.That(t, "the group's players", func() string {
		var g struct{ TotalPlayers int }
		admin.Do("GET", "/api/v1/groups/own", nil).OK(200, &g)
		return await.Unless(g.TotalPlayers == 2, "%+v", g)
	})
	admin.Do("POST", "/api/v1/services/"+i.ID+"/command", map[string]string{"command": "go"}).OK(200)
	awaitPlayers(1)
	admin.Do("PATCH", "/api/v1/groups/own", map[string]any{"minInstances": 0}).OK(200)
	admin.Do("POST", "/api/v1/services/"+i.UID+"/stop", nil).OK(200)
	await.That(t, "nobody is there", func() string {
		var all list
		admin.Do("GET", "/api/v1/players", nil).OK(200, &all)
		return await.Unless(all.Total == 0, "%+v", all)
	})
}

// teller reports a server's players to the API with the server's own token. It numbers its
// reports and sends one at a time.
type teller struct {
	instance, token string
	sequence        int
	http            *http.Client
}

// tell sends a report through a gateway.
func (s *teller) tell(ctx context.Context, at cluster.Cluster, what, player string) error {
	s.sequence++
	body := fmt.Sprintf(`{"uuid":%q}`, player)
	if what == "player-join" {
		body = fmt.Sprintf(`{"uuid":%q,"name":"P%s"}`, player, player[len(player)-8:])
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.API()+"/api/plugin/"+what, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("X-Prexor-Sequence", fmt.Sprint(s.sequence))
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s of %s by %s: %d %s", what, player, s.instance, resp.StatusCode, answer)
	}
	return nil
}

// tellers returns a teller for each instance of a group, once each has written its token to
// a directory.
func tellers(t *testing.T, admin *cluster.Client, group, dir string, n int) (all []*teller) {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	t.Cleanup(transport.CloseIdleConnections)
	for _, i := range admin.AwaitRunning(group, n) {
		s := &teller{instance: i.ID, http: &http.Client{Transport: transport, Timeout: await.Patience}}
		await.That(t, "the token of "+i.ID, func() string {
			token, err := os.ReadFile(filepath.Join(dir, i.ID))
			s.token = strings.TrimSpace(string(token))
			return await.Unless(err == nil && strings.HasSuffix(string(token), "\n"), "%v", err)
		})
		all = append(all, s)
	}
	return all
}

// whereabouts maps the players that a gateway shows to their servers.
func whereabouts(admin *cluster.Client) map[string]string {
	out := map[string]string{}
	for page := 1; ; page++ {
		var list struct {
			Total int
			Data  []struct{ ID, CurrentInstance string }
		}
		admin.Do("GET", fmt.Sprint("/api/v1/players?pageSize=500&page=", page), nil).OK(200, &list)
		for _, p := range list.Data {
			out[p.ID] = p.CurrentInstance
		}
		if len(list.Data) == 0 {
			return out
		}
	}
}

func TestAThousandPlayersOfTenServersAreTheSameOnEveryGateway(t *testing.T) {
	const servers, each = 10, 100
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	gateways := []cluster.Cluster{c, cluster.AddGateway(t, c, admin, "second")}
	dir := cluster.OpenDir(t)
	createGroup(t, admin, map[string]any{
		"name": "own", "memoryMb": 16, "minInstances": servers, "maxPlayers": 2 * each, "shutdownGraceSeconds": 1,
		"command": `echo "$ORRERY_TOKEN" > "` + dir + `/$ORRERY_INSTANCE_NAME"; exec sleep 1000`,
	})
	all := tellers(t, admin, "own", dir, servers)
	where := map[string]string{}
	player := func(server, n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%04d%08d", server, n) }
	// All servers report concurrently, each about its own players in sequence, through
	// either gateway.
	atOnce := func(what string, of func(server, n int) (player string, ok bool)) {
		t.Helper()
		ctx := cluster.Bounded(t)
		var telling sync.WaitGroup
		for server, s := range all {
			telling.Go(func() {
				for n := range each {
					if p, ok := of(server, n); ok {
						if err := s.tell(ctx, gateways[(server+n)%2], what, p); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		telling.Wait()
	}
	awaitThem := func(what string) {
		t.Helper()
		for _, at := range gateways {
			await.That(t, what, func() string {
				got := whereabouts(admin.Through(at))
				wrong := 0
				for player, instance := range where {
					if got[player] != instance {
						wrong++
					}
				}
				return await.Unless(maps.Equal(got, where), "%d are shown and %d are there, of whom %d are shown elsewhere or not at all", len(got), len(where), wrong)
			})
		}
	}

	atOnce("player-join", func(server, n int) (string, bool) { return player(server, n), true })
	for server, s := range all {
		for n := range each {
			where[player(server, n)] = s.instance
		}
	}
	awaitThem("a thousand have joined")

	// A third of the players moves to the next server, which reports them before their old
	// server does.
	moves := func(n int) bool { return n%3 == 0 }
	atOnce("player-join", func(server, n int) (string, bool) { return player((server+servers-1)%servers, n), moves(n) })
	atOnce("player-leave", func(server, n int) (string, bool) { return player(server, n), moves(n) })
	for server := range all {
		for n := range each {
			if moves(n) {
				where[player(server, n)] = all[(server+1)%servers].instance
			}
		}
	}
	awaitThem("a third have moved")

	// Half of the remaining players leave.
	leaves := func(n int) bool { return !moves(n) && n%2 == 0 }
	atOnce("player-leave", func(server, n int) (string, bool) { return player(server, n), leaves(n) })
	for server := range all {
		for n := range each {
			if leaves(n) {
				delete(where, player(server, n))
			}
		}
	}
	awaitThem("a third have left")
}
