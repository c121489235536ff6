package arena

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/examples/arena/ping"
)

func TestAServerShowsItsSettings(t *testing.T) {
	inDir(t, "server-port=1", "server-ip=127.0.0.1", `motd=caf\u00e9 %`, "max-players=7", "future=kept")
	r := inProcess(t, "--port", "0", "--players", "20")
	got, err := ping.Ping(t.Context(), r.addr(t))
	if err != nil {
		t.Fatal(err)
	}
	if got.Description != "café %" || got.Players.Max != 7 || got.Players.Online != 20 || len(got.Players.Sample) != sampleSize {
		t.Errorf("the status is %+v", got)
	}
	if got.Version.Protocol != ownProtocol || got.Latency <= 0 {
		t.Errorf("protocol %d, latency %s", got.Version.Protocol, got.Latency)
	}
	// The ID is the UUID that every server without accounts gives this name.
	if first := got.Players.Sample[0]; first.Name != "Player1" || len(first.ID) != 36 || first.ID[14] != '3' {
		t.Errorf("the first player is %+v", first)
	}
}

func TestConsole(t *testing.T) {
	inDir(t, "max-players=5", "level-name=home")
	r := inProcess(t, "--port", "0", "--players", "2", "--ignore-stop=false")
	r.addr(t)
	for _, tc := range []struct{ line, answer string }{
		{"list", `There are 2 of a max of 5 players online: Player1, Player2\n`},
		{"/list", `(?s)There are.*There are`},
		{"  say   hello  world ", `INFO\]: \[Server\] hello  world\n`},
		{"say", `Usage: say <text>`},
		{"help", `stop: save the world`},
		{"fly 7", `Unknown command "fly"\. Type "help" for help\.`},
		{strings.Repeat("x", 2*maxLine), `Unknown command "x{` + "1000" + `}`},
		{"save", `Saved the game`},
	} {
		r.say(t, tc.line)
		r.out.wait(t, tc.answer)
	}
	if _, err := os.Stat("world/home.json"); err != nil {
		t.Errorf("save wrote no world: %v", err)
	}
	r.say(t, "stop")
	if code := r.code(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	out, _ := r.out.state()
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if len(line) < 17 || line[0] != '[' || line[9:17] != " INFO]: " {
			t.Errorf("this line is not in the format of the log: %.80q", line)
		}
	}
}

func TestTheWorldSurvivesAStop(t *testing.T) {
	inDir(t)
	for boot := int64(1); boot <= 3; boot++ {
		r := inProcess(t, "--port=0")
		r.addr(t)
		r.say(t, "say something")
		r.say(t, "stop")
		if code := r.code(t); code != exitOK {
			t.Fatalf("exit code %d", code)
		}
		data, err := os.ReadFile("world/world.json")
		if err != nil {
			t.Fatal(err)
		}
		var w world
		if err := json.Unmarshal(data, &w); err != nil || w.Boots != boot || w.Messages != boot {
			t.Fatalf("after boot %d the world is %s", boot, data)
		}
	}
	if left, _ := filepath.Glob("world/.saving-*"); len(left) > 0 {
		t.Errorf("half-written files are left: %v", left)
	}
}

func TestMainFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())

	for _, tc := range []struct {
		name       string
		properties string
		world      string
		args       []string
		code       int
		says       string
	}{
		{name: "help is no failure", args: []string{"--help"}, code: exitOK, says: "-boot-delay"},
		{name: "an unknown flag", args: []string{"--fly"}, code: exitUsage, says: "-fly"},
		{name: "an argument too many", args: []string{"nogui"}, code: exitUsage, says: `unexpected argument "nogui"`},
		{name: "a port out of range", args: []string{"--port", "70000"}, code: exitUsage, says: "--port must be between 0 and 65535, not 70000"},
		{name: "a negative delay", args: []string{"--boot-delay=-1s"}, code: exitUsage, says: "must not be negative"},
		{name: "the hidden argument alone", args: []string{daemonStage}, code: exitUsage, says: "for the program itself"},
		{name: "settings that make no sense", properties: "server-port=%PORT%", code: exitError, says: `server.properties: server-port must be`},
		{name: "a port that is taken", properties: "server-ip=127.0.0.1", args: []string{"--port", port}, code: exitError, says: "failed to bind to port " + port},
		{name: "an address that is not ours", properties: "server-ip=192.0.2.1", args: []string{"--port=0"}, code: exitError, says: "check server-ip"},
		{name: "a damaged world", world: "{", args: []string{"--port=0"}, code: exitError, says: "world/world.json is damaged"},
		{name: "a lock in no directory", args: []string{"--lock=none/lock"}, code: exitError, says: "cannot open the lock"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inDir(t, tc.properties)
			if tc.world != "" {
				if err := os.Mkdir(worldDir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile("world/world.json", []byte(tc.world), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			r := inProcess(t, tc.args...)
			code := r.code(t)
			if said, _ := r.err.state(); code != tc.code || !strings.Contains(said, tc.says) {
				t.Errorf("exit code %d, said %q; want %d and %q", code, said, tc.code, tc.says)
			}
			if tc.world != "" {
				if data, err := os.ReadFile("world/world.json"); string(data) != tc.world {
					t.Errorf("the world was overwritten with %q, %v", data, err)
				}
			}
		})
	}
}
