package e2e_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// join joins a Minecraft server as a player and returns what it answers.
func join(t *testing.T, port int, player string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	field := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }
	hello := field([]byte{0, 0xff, 0x05}, "localhost")
	hello = append(binary.BigEndian.AppendUint16(hello, uint16(port)), 2)
	login := append(field([]byte{0}, player), make([]byte, 16)...)
	packets := append(field(nil, string(hello)), field(nil, string(login))...)
	if _, err := conn.Write(packets); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	size, err := binary.ReadUvarint(r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestAnEmptyServerSleepsAndAJoinWakesIt(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	c := cluster.Start(t, cluster.Options{DataDir: data})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "lobby", map[string]any{
		"command":      "echo >> runs; echo this is run $(wc -l < runs); exec " + cluster.Program(t, "./examples/arena/cmd/arena"),
		"minInstances": 1, "shutdownGraceSeconds": 5, "readiness": map[string]any{"type": "minecraft"},
		"sleepAfterEmptySeconds": 3, "sleepMotd": "zzz, join to wake",
	}))
	i := admin.AwaitRunning("lobby", 1)[0]
	asleep := func() {
		t.Helper()
		await.That(t, "it sleeps", func() string {
			all := admin.Instances("lobby")
			return await.Unless(len(all) == 1 && all[0].State == "STOPPED" && all[0].Reason == "SLEEPING" && all[0].Port == i.Port, "%+v", all)
		})
		await.That(t, "its port answers", func() string {
			conn, err := net.Dial("tcp", address(i.Port))
			if err == nil {
				_ = conn.Close()
			}
			return await.Unless(err == nil, "%v", err)
		})
	}
	asleep()
	if pids := carriers(t, i.UID); len(pids) > 0 {
		t.Errorf("processes %v of a sleeping instance", pids)
	}
	if s := pingArena(t, i.Port); !strings.Contains(fmt.Sprint(s.Description), "zzz, join to wake") || s.Players.Max != 7 {
		t.Errorf("it answers %+v", s)
	}
	if now := admin.Instances("lobby"); now[0].Reason != "SLEEPING" {
		t.Errorf("a ping woke it: %+v", now)
	}
	c.Stop()
	c = cluster.Start(t, cluster.Options{DataDir: data})
	admin = cluster.Login(t, c)
	asleep()
	admin.Do("PATCH", "/api/v1/groups/lobby", map[string]any{"sleepAfterEmptySeconds": 0}).OK(200)
	if told := join(t, i.Port, "ann"); !strings.Contains(told, "starting, rejoin in a moment") {
		t.Errorf("the player is told %q", told)
	}
	woken := admin.AwaitRunning("lobby", 1)[0]
	if woken.UID != i.UID || woken.Port != i.Port || woken.Generation != i.Generation+1 {
		t.Errorf("it was %+v and is %+v", i, woken)
	}
	if s := pingArena(t, woken.Port); !strings.Contains(fmt.Sprint(s.Description), "lobby-1 of lobby") {
		t.Errorf("the server answers %+v", s)
	}
	await.That(t, "it has its directory", func() string {
		var h struct{ Lines []struct{ Line string } }
		admin.Do("GET", "/api/v1/services/"+i.ID+"/console/history", nil).OK(200, &h)
		text := fmt.Sprint(h)
		return await.Unless(strings.Contains(text, "this is run 2"), "%s", text)
	})
	admin.Do("POST", "/api/v1/instances/"+i.ID+"/sleep", nil).OK(200)
	asleep()
	admin.Do("POST", "/api/v1/instances/"+i.ID+"/stop", nil).OK(200)
	admin.AwaitRunning("lobby", 1) // the minimum starts another one
}
