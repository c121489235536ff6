package arena

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/examples/arena/ping"
)

func signalTo(t *testing.T, r *running, sig os.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func TestSignalsStopLikeTheConsole(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			r := asProcess(t, dir, "--port=0")
			r.addr(t)
			signalTo(t, r, sig)
			if code := r.code(t); code != exitOK {
				t.Errorf("exit code %d", code)
			}
			if _, err := os.Stat(filepath.Join(dir, "world", "world.json")); err != nil {
				t.Errorf("the world was not saved: %v", err)
			}
		})
	}
}

func TestASignalEndsALongBoot(t *testing.T) {
	r := asProcess(t, t.TempDir(), "--port=0", "--boot-delay=1h")
	r.out.wait(t, "Starting arena")
	signalTo(t, r, syscall.SIGTERM)
	if code := r.code(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestTheEndOfStdinIsNotAStop(t *testing.T) {
	r := asProcess(t, t.TempDir(), "--port=0")
	addr := r.addr(t)
	r.say(t, "list")
	r.stdin.Close()
	r.out.wait(t, "There are 0")
	if _, err := ping.Ping(t.Context(), addr); err != nil {
		t.Errorf("it stopped serving: %v", err)
	}
}

func TestIgnoringEverythingButAKill(t *testing.T) {
	r := asProcess(t, t.TempDir(), "--port=0", "--ignore-term", "--ignore-stop")
	addr := r.addr(t)
	signalTo(t, r, syscall.SIGTERM)
	r.out.wait(t, "Ignoring signal: terminated")
	signalTo(t, r, os.Interrupt)
	r.out.wait(t, "Ignoring signal: interrupt")
	r.say(t, "stop")
	r.out.wait(t, "Ignoring stop")
	if _, err := ping.Ping(t.Context(), addr); err != nil {
		t.Errorf("it stopped serving: %v", err)
	}
}

func TestACrashSavesNothingAndSaysWhere(t *testing.T) {
	dir := t.TempDir()
	r := asProcess(t, dir, "--port=0", "--crash-after=1ms", "--crash-code=42", "--lock=lock")
	if code := r.code(t); code != 42 {
		t.Errorf("exit code %d", code)
	}
	r.err.wait(t, `(?s)ERROR\]: Encountered an unexpected exception: .*goroutine .*faults\.go:\d+`)
	if _, err := os.Stat(filepath.Join(dir, "world")); err == nil {
		t.Error("it saved its world")
	}
	if notes := lockNotes(t, filepath.Join(dir, "lock")); strings.Join(notes, " ") != "acquired" {
		t.Errorf("the lock says %q, want acquired alone", notes)
	}
}

func TestLinesAreNumberedWithoutAGap(t *testing.T) {
	inDir(t)
	r := inProcess(t, "--port=0", "--print-lines=5000", "--burn-memory=8", "--burn-cpu=1")
	r.out.wait(t, `line 300\n`)
	r.say(t, "stop")
	r.code(t)
	out, _ := r.out.state()
	want := 1
	for line := range strings.Lines(out) {
		if _, number, ok := strings.Cut(line, "]: line "); ok {
			if strings.TrimSpace(number) != strconv.Itoa(want) {
				t.Fatalf("line %d is %q", want, line)
			}
			want++
		}
	}
}

func TestOneHolderOfALock(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	first := asProcess(t, dir, "--port=0", "--lock", lock)
	first.addr(t)
	second := asProcess(t, dir, "--port=0", "--lock", lock)
	if code := second.code(t); code != exitError {
		t.Errorf("the second exits with %d", code)
	}
	second.err.wait(t, "another process holds the lock")
	first.say(t, "stop")
	first.code(t)
	third := asProcess(t, dir, "--port=0", "--lock", lock)
	third.addr(t)
	if got := strings.Join(lockNotes(t, lock), " "); got != "acquired refused released acquired" {
		t.Errorf("the lock says %q", got)
	}
}

// lockNotes returns the first words of the lines of a lock file and checks the other
// fields.
func lockNotes(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 4 || f[2] != "abc123" {
			t.Fatalf("a line of the lock is %q", line)
		}
		notes = append(notes, f[0])
	}
	return notes
}

func TestADaemonStaysBehind(t *testing.T) {
	r := asProcess(t, t.TempDir(), "--port=0", "--fork-daemon", "--ignore-term")
	pid, err := strconv.Atoi(r.out.wait(t, `Started a daemon with pid (\d+)\n`)[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	r.addr(t)
	r.say(t, "stop")
	if code := r.code(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	d := procStat(t, pid)
	if d.parent == r.cmd.Process.Pid || d.session != pid || d.group != pid {
		t.Errorf("the daemon is %+v, want a session of its own and another parent than %d", d, r.cmd.Process.Pid)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !strings.Contains(string(environ), "ORRERY_INSTANCE_ID=abc123\x00") {
		t.Errorf("the daemon does not carry its instance: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if s := procStat(t, pid); s.state == "Z" {
		t.Error("SIGTERM ended it")
	}
}

func TestLeadingArgs(t *testing.T) {
	for _, tc := range []struct {
		name            string
		all, args, want string
	}{
		{"a program of its own has none", "--port 0", "--port 0", ""},
		{"a subcommand stands before", "arena --port 0", "--port 0", "arena"},
		{"without arguments all of them lead", "hidden arena", "", "hidden arena"},
		{"arguments from elsewhere are not ours", "-test.v", "--port 0", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := leadingArgs(strings.Fields(tc.all), strings.Fields(tc.args))
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// stat is the content of a process's /proc/PID/stat.
type stat struct {
	state                  string
	parent, group, session int
}

func procStat(t *testing.T, pid int) stat {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatalf("the process is gone: %v", err)
	}
	var s stat
	// The name before the last parenthesis may contain any character.
	rest := string(data[strings.LastIndexByte(string(data), ')')+1:])
	if _, err := fmt.Sscan(rest, &s.state, &s.parent, &s.group, &s.session); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return s
}
