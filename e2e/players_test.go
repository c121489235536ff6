package e2e_test

import (
	"fmt"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// saysWith is a shell line that posts a body to the API from inside an instance, with its own token.
func saysWith(path string, sequence int, body string) string {
	return fmt.Sprintf(`exec 3<>/dev/tcp/$CLOUD_CONTROLLER_HOST/$CLOUD_CONTROLLER_PORT; printf 'POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n`+
		`Authorization: Bearer %%s\r\nX-Prexor-Sequence: %d\r\nContent-Length: %d\r\n\r\n%s' $ORRERY_TOKEN >&3; head -1 <&3; `, path, sequence, len(body), body)
}

func TestPlayersAreWhereTheirServersTellAndGoWithThem(t *testing.T) {
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
