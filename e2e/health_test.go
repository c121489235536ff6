package e2e_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// figures are what both API dialects show about an instance's players.
type figures struct {
	PlayerCount int  `json:"playerCount"`
	Players     *int `json:"players"`
	MaxPlayers  *int `json:"maxPlayers"`
}

func figuresOf(admin *cluster.Client, path string) (f figures) {
	admin.Do("GET", path, nil).OK(200, &f)
	return f
}

func TestPlayersStandInEveryViewAndAServerThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "lobby", map[string]any{
		"command": "exec " + cluster.Program(t, "./examples/arena/cmd/arena") + " --players 5", "minInstances": 1, "shutdownGraceSeconds": 1,
		"readiness": map[string]any{"type": "minecraft"},
		"liveness":  map[string]any{"type": "minecraft", "intervalSeconds": 0.2, "timeoutSeconds": 0.5, "failures": 2},
	}))
	i := admin.AwaitRunning("lobby", 1)[0]
	await.That(t, "the players", func() string {
		native, older := figuresOf(admin, "/api/v1/services/"+i.ID), figuresOf(admin, "/api/instances/"+i.UID)
		known := native.PlayerCount == 5 && *native.MaxPlayers == 7 && older.Players != nil && *older.Players == 5 && *older.MaxPlayers == 7
		return await.Unless(known, "%+v, %+v", native, older)
	})
	var page struct{ Data []figures }
	await.That(t, "the players in the list", func() string {
		admin.Do("GET", "/api/v1/services?group=lobby", nil).OK(200, &page)
		return await.Unless(len(page.Data) == 1 && page.Data[0].PlayerCount == 5, "%+v", page)
	})
	if err := syscall.Kill(i.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if hung := admin.AwaitState(i.UID, "CRASHED"); hung.Reason != "Unhealthy" {
		t.Errorf("%+v", hung)
	}
	if next := admin.AwaitRunning("lobby", 1)[0]; next.UID == i.UID {
		t.Error("nobody took its place")
	}
}

// says returns a shell command that posts to the API from inside an instance, with the
// instance's own token.
func says(path string, sequence int) string {
	return fmt.Sprintf(`exec 3<>/dev/tcp/$CLOUD_CONTROLLER_HOST/$CLOUD_CONTROLLER_PORT; printf 'POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n`+
		`Authorization: Bearer %%s\r\nX-Prexor-Sequence: %d\r\nContent-Length: 0\r\n\r\n' $ORRERY_TOKEN >&3; head -1 <&3; `, path, sequence)
}

func TestAServerIsReadyWhenItSaysSoFromInside(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{
		"name": "own", "memoryMb": 32, "minInstances": 1, "shutdownGraceSeconds": 1, "readiness": map[string]any{"type": "heartbeat"},
		"command": `read line; ` + says("/api/plugin/ready", 7) + says("/api/plugin/ready", 7) + `exec sleep 1000`,
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
	await.That(t, "both answers", func() string {
		var log struct{ Lines []struct{ Line string } }
		admin.Do("GET", "/api/v1/services/"+i.ID+"/console/history", nil).OK(200, &log)
		return await.Unless(len(log.Lines) == 2 && log.Lines[0].Line == "HTTP/1.1 200 OK" && log.Lines[1].Line == "HTTP/1.1 401 Unauthorized", "%+v", log)
	})
}
