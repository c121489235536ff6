package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listenVariable makes the test program a server that writes its ports into the named file.
const listenVariable = "IMPORTER_TEST_LISTEN"

func TestMain(m *testing.M) {
	if file := os.Getenv(listenVariable); file != "" {
		if err := serve(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve listens on a TCP and a UDP port until its standard input ends.
func serve(file string) error {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer tcp.Close()
	var udp net.PacketConn
	for port := 20000; udp == nil; port++ { // below those that clients get
		if port == 30000 {
			return err
		}
		udp, err = net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			udp = nil
		}
	}
	defer udp.Close()
	ports := fmt.Sprintf("%d %d", tcp.Addr().(*net.TCPAddr).Port, udp.LocalAddr().(*net.UDPAddr).Port)
	if err := os.WriteFile(file+".new", []byte(ports), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	_, err = os.Stdin.Read(make([]byte, 1))
	return err
}

// session starts the test program in a session of screen and returns its ports.
func session(t *testing.T, name, dir string) (tcp, udp int) {
	t.Helper()
	needScreen(t)
	sockets := filepath.Join(t.TempDir(), "sockets")
	if err := os.Mkdir(sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SCREENDIR", sockets)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ports")
	start := exec.CommandContext(t.Context(), "screen", "-dmS", name, "sh", "-c", `"$0" -Xmx2G --port 25570 --rcon-password 'hun ter2'; true`, self)
	start.Dir = dir
	start.Env = append(os.Environ(), listenVariable+"="+file, "GAME_MODE=hard")
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("start screen: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "screen", "-S", name, "-X", "quit").Run() })
	deadline := time.Now().Add(5 * time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		text, err := os.ReadFile(file)
		if err == nil {
			if _, err := fmt.Sscanf(string(text), "%d %d", &tcp, &udp); err != nil {
				t.Fatal(err)
			}
			return tcp, udp
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server in the session did not start: %v", err)
		}
	}
}

func TestScreenImportsARunningSession(t *testing.T) {
	dir := tree(t, map[string]string{"server.properties": "server-port=25570\nrcon.password=hunter2\n"})
	tcp, udp := session(t, "My.Survival", dir)
	r, err := Screen("My.Survival")
	if err != nil {
		t.Fatal(err)
	}
	fields := r.Documents[0].Fields
	command := fmt.Sprint(fields["command"])
	if r.Documents[0].Name != "my-survival" || !strings.HasSuffix(command, " -Xmx2G --port %PORT% --rcon-password %RCON_PASSWORD%") {
		t.Errorf("got the group %s with the command %q", r.Documents[0].Name, command)
	}
	want := map[string]string{
		"memoryMb": "2355", "portRangeStart": "25570", "portRangeEnd": "25570", "runtime": "screen", "static": "true", "stopCommand": "stop", "maintenance": "true",
		"additionalPorts": fmt.Sprint([]any{
			map[string]any{"name": fmt.Sprintf("tcp-%d", tcp), "port": json.Number(strconv.Itoa(tcp)), "protocol": "tcp"},
			map[string]any{"name": fmt.Sprintf("udp-%d", udp), "port": json.Number(strconv.Itoa(udp)), "protocol": "udp"},
		}),
	}
	for field, value := range want {
		if got := fmt.Sprint(fields[field]); got != value {
			t.Errorf("%s is %s, want %s", field, got, value)
		}
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Static) != 1 || r.Static[0] != (StaticData{"my-survival", "my-survival-1", resolved}) {
		t.Errorf("got the data %+v", r.Static)
	}
	if n, ok := find(r, "session My.Survival", "environment"); !ok || !strings.Contains(n.Value, "GAME_MODE") || strings.Contains(n.Value, "SCREENDIR") {
		t.Errorf("got the note %+v of the environment", n)
	}
	if _, ok := find(r, "session My.Survival", "script"); !ok {
		t.Error("no note of the shell that started the server")
	}
	if text := rendered(t, r, ""); strings.Contains(text, "hunter2") || strings.Contains(text, "ter2") {
		t.Error("the result has a secret")
	}
	if _, err := Screen("missing"); err == nil || !strings.Contains(err.Error(), "My.Survival") {
		t.Errorf("got %v for a missing session, want the names of those there are", err)
	}
}

// needScreen skips a test without screen, and fails it in CI.
func needScreen(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("screen")
	switch {
	case err == nil:
	case os.Getenv("ORRERY_CI") == "1":
		t.Fatal(err)
	default:
		t.Skip("screen is not installed")
	}
}

func TestScreenNeedsASession(t *testing.T) {
	needScreen(t)
	sockets := filepath.Join(t.TempDir(), "sockets")
	if err := os.Mkdir(sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SCREENDIR", sockets)
	if _, err := Screen("any"); err == nil || !strings.Contains(err.Error(), "has no session") {
		t.Errorf("got %v", err)
	}
}

func TestSystemdErrors(t *testing.T) {
	dir := tree(t, map[string]string{
		"empty.service": "[Service]\nType=oneshot\n", "broken.service": "[Service]\nExecStart=/bin/true\nnonsense\n", "t@.service": "[Service]\nExecStart=/bin/true\n",
		"blank.service": "[Service]\nExecStart=/usr/bin/screen -dmS x\n",
	})
	for name, want := range map[string]string{
		"empty.service": "has no ExecStart", "broken.service": "broken.service:3:1: want", "t@.service": "is a template", "missing.service": "no such file", "blank.service": "has no command",
	} {
		if _, err := Systemd(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, want)
		}
	}
	if _, err := Systemd("no-such-unit-of-orrery"); err == nil || !strings.Contains(err.Error(), "give the path of its file") {
		t.Errorf("got %v for a unit that does not exist", err)
	}
}

func TestSystemdReadsFilesOfTheEnvironment(t *testing.T) {
	dir := tree(t, map[string]string{"env": "# comment\nTZ=UTC\nMODE=\"very hard\"\nDB_PASSWORD=hunter2\n", "server.properties": "server-port=25590\n"})
	unit := filepath.Join(dir, "x.service")
	text := "[Service]\nWorkingDirectory=" + dir + "\nEnvironmentFile=" + dir + "/env\nExecStart=" + dir + "/run.sh $OPTIONS \"${MODE}\" cost$$5\nUser=%u\n"
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Systemd(unit)
	if err != nil {
		t.Fatal(err)
	}
	fields := r.Documents[0].Fields
	want := map[string]string{
		"command": `./run.sh $OPTIONS "${MODE}" "cost\$5"`, "env": "map[MODE:very hard TZ:UTC]", "portRangeStart": "25590", "stopCommand": "",
		"configPatches": "map[server.properties:map[server-port:%PORT%]]", "onCrash": "stop",
	}
	for field, value := range want {
		if got := fmt.Sprint(fields[field]); got != value {
			t.Errorf("%s is %s, want %s", field, got, value)
		}
	}
	if _, ok := find(r, "unit x.service", "EnvironmentFile.env.DB_PASSWORD"); !ok {
		t.Errorf("no note of the secret: %+v", r.Notes)
	}
}

func TestAUnitWithoutADirectoryHasNoData(t *testing.T) {
	dir := tree(t, map[string]string{"x.service": "[Service]\nExecStart=/usr/bin/java -jar /srv/server.jar\n"})
	r, err := Systemd(filepath.Join(dir, "x.service"))
	if err != nil {
		t.Fatal(err)
	}
	if command := r.Documents[0].Fields["command"]; command != "/usr/bin/java -jar /srv/server.jar" || len(r.Static) != 0 {
		t.Errorf("got the command %v and the data %+v", command, r.Static)
	}
	if _, ok := find(r, "unit x.service", "WorkingDirectory"); !ok {
		t.Error("no note says that the data is unknown")
	}
}

// FuzzSystemd feeds any text as a unit.
func FuzzSystemd(f *testing.F) {
	for _, name := range []string{"minecraft@.service", "proxy.service"} {
		text, err := os.ReadFile(filepath.Join("testdata/systemd", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir := tree(t, map[string]string{"a.service": text})
		r, err := Systemd(filepath.Join(dir, "a.service"))
		if err == nil && len(r.Documents) != 1 {
			t.Errorf("got %d documents", len(r.Documents))
		}
	})
}
