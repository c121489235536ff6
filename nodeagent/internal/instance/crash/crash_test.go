package crash

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

func exited(code int) *fleet.Exit { return &fleet.Exit{Code: code, Known: true} }

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

const trace = `
[12:00:01 INFO]: Loading world 17
[12:00:02 ERROR]: Encountered an unexpected exception
java.lang.RuntimeException: world 17 is broken
	at net.game.Server.load(Server.java:120) ~[server.jar:?]
	at java.base/java.lang.Thread.run(Thread.java:1583)
Caused by: java.io.IOException: chunk 33 of /srv/instances/abc123/world at 0x7f001122
	at net.game.Region.read(Region.java:55)
	... 9 more
[12:00:03 INFO]: Saving players`

func TestReadCategory(t *testing.T) {
	cases := []struct {
		rule string
		end  End
		want reports.CrashCategory
	}{
		{"OOM kill", End{Exit: &fleet.Exit{Code: 137, Known: true, OOM: true}}, reports.CrashOutOfMemory},
		{"Java heap exhausted", End{Exit: exited(1), Tail: lines("java.lang.OutOfMemoryError: Java heap space")}, reports.CrashOutOfMemory},
		{"memory takes precedence", End{Exit: exited(1), Tail: lines("java.net.BindException: x\nOutOfMemoryError")}, reports.CrashOutOfMemory},
		{"stack overflow", End{Exit: exited(1), Tail: lines("java.lang.StackOverflowError")}, reports.CrashStackOverflow},
		{"stack overflow in Go", End{Exit: exited(2), Tail: lines("runtime: goroutine stack exceeds 1000000000-byte limit")}, reports.CrashStackOverflow},
		{"missing class", End{Exit: exited(1), Tail: lines("Caused by: java.lang.ClassNotFoundException: a.B")}, reports.CrashClassNotFound},
		{"missing jar", End{Exit: exited(1), Tail: lines("Error: Unable to access jarfile server.jar")}, reports.CrashClassNotFound},
		{"port in use", End{Exit: exited(1), Tail: lines("**** FAILED TO BIND TO PORT!")}, reports.CrashPortBind},
		{"port in use in Go", End{Exit: exited(1), Tail: lines("listen tcp :25565: bind: address already in use")}, reports.CrashPortBind},
		{"too late", End{Reason: fleet.ReasonStartTimeout, Exit: exited(137), Tail: lines("OutOfMemoryError")}, reports.CrashStartTimeout},
		{"unhealthy", End{Reason: fleet.ReasonUnhealthy, Exit: exited(137)}, reports.CrashUnhealthy},
		{"clean", End{Exit: exited(0)}, reports.CrashClean},
		{"general", End{Exit: exited(1)}, reports.CrashGeneral},
		{"interrupted", End{Exit: exited(130)}, reports.CrashInterrupted},
		{"aborted", End{Exit: exited(134)}, reports.CrashAborted},
		{"killed", End{Exit: exited(137)}, reports.CrashKilled},
		{"segfault", End{Exit: exited(139)}, reports.CrashSegfault},
		{"terminated", End{Exit: exited(143)}, reports.CrashTerminated},
		{"another code", End{Exit: exited(42)}, reports.CrashUnknown},
		{"unknown exit", End{Exit: &fleet.Exit{}}, reports.CrashUnknown},
		{"never started", End{}, reports.CrashUnknown},
	}
	for _, c := range cases {
		if got := Read(c.end).Category; got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestReadCause(t *testing.T) {
	cases := []struct{ rule, tail, want string }{
		{"root cause of a chain", trace, "Caused by: java.io.IOException: chunk 33 of /srv/instances/abc123/world at 0x7f001122"},
		{"logger prefix and colours are removed", "\x1b[31m[12:00:00] [Server thread/ERROR]: java.lang.IllegalStateException: no\x1b[0m\nbye", "java.lang.IllegalStateException: no"},
		{"go", "starting\npanic: runtime error: index out of range [3] with length 2\n\ngoroutine 1 [running]:\nmain.main()", "panic: runtime error: index out of range [3] with length 2"},
		{"python", "Traceback (most recent call last):\n  File \"s.py\", line 3, in <module>\nValueError: no number", "ValueError: no number"},
		{"a shell", "sh: 1: nosuch: not found", "sh: 1: nosuch: not found"},
		{"a complaint", "ok\n2026-01-02 12:00:00,123 WARN could not open: failed\nok", "could not open: failed"},
		{"nothing", "hello\nworld", ""},
	}
	for _, c := range cases {
		if got := Read(End{Exit: exited(1), Tail: lines(c.tail)}).Cause; got != c.want {
			t.Errorf("%s: %q", c.rule, got)
		}
	}
}

func TestCauseNearEndIsPreferred(t *testing.T) {
	const early = "[12:00:00 WARN]: failed to load a.jar\njava.lang.IllegalStateException: a plugin\n\tat a.B.c(B.java:1)\n"
	for _, c := range []struct {
		rule, tail, want string
		late             int
	}{
		{"complaint of the last second", early + "ERROR: cannot write the world", "cannot write the world", 1},
		{"most specific line of the last second", early + "panic: x\nERROR: failed late", "panic: x", 2},
		{"last trace if the last second has no cause", early + "Error: no such option\nbye", "java.lang.IllegalStateException: a plugin", 1},
		{"last trace if the last second is silent", early + "[12:00:01 WARN]: failed again", "java.lang.IllegalStateException: a plugin", 0},
		{"specific line before a warning", "Error: no such option\n[12:00:01 WARN]: failed again\nbye", "Error: no such option", 1},
		{"early warning without anything else", "[12:00:01 WARN]: failed again\nbye", "failed again", 1},
	} {
		if got := Read(End{Exit: exited(1), Tail: lines(c.tail), Late: c.late}).Cause; got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
	killed := End{Exit: &fleet.Exit{Code: 137, Signal: "KILL", Known: true}, Tail: lines(early), Late: 3}
	for reason, want := range map[fleet.Reason]string{
		fleet.ReasonKilledBySignal: reports.CauseKilled,
		fleet.ReasonDiskLimit:      fleet.ReasonDiskLimit.Text(),
		fleet.ReasonUnhealthy:      "java.lang.IllegalStateException: a plugin",
		fleet.ReasonTerminalGone:   "java.lang.IllegalStateException: a plugin",
	} {
		killed.Reason = reason
		if got := Read(killed).Cause; got != want {
			t.Errorf("SIGKILL for %s: %q, want %q", reason, got, want)
		}
	}
	killed.Reason = fleet.ReasonKilledBySignal
	killed.Tail = lines("java.lang.OutOfMemoryError: Java heap space")
	if got := Read(killed); got.Category != reports.CrashOutOfMemory || !strings.Contains(got.Cause, "heap") {
		t.Errorf("SIGKILL after its own words: %+v", got)
	}
}

func TestEqualCausesShareFingerprint(t *testing.T) {
	first := End{Exit: exited(1), Tail: lines(trace), Own: []string{"abc123"}}
	same := End{Exit: exited(1), Own: []string{"xyz789"}, Tail: lines(strings.NewReplacer(
		"12:00", "23:59", "world 17", "world 4", "chunk 33", "chunk 1", "abc123", "xyz789", "0x7f001122", "0x55aa", "Region.java:55", "Region.java:57").Replace(trace))}
	elsewhere := End{Exit: exited(1), Own: first.Own, Tail: lines(strings.ReplaceAll(trace, "Region.read", "Region.write"))}
	other := End{Exit: exited(1), Own: first.Own, Tail: lines(strings.ReplaceAll(trace, "IOException", "EOFException"))}
	signal := End{Exit: &fleet.Exit{Code: 139, Signal: "SEGV", Known: true}, Own: first.Own, Tail: first.Tail}
	want := Read(first).Fingerprint
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(want) {
		t.Errorf("%q", want)
	}
	if got := Read(same).Fingerprint; got != want {
		t.Errorf("the same cause in another run: %s, want %s", got, want)
	}
	for name, e := range map[string]End{"another place": elsewhere, "another exception": other, "another end": signal} {
		if Read(e).Fingerprint == want {
			t.Errorf("%s has the same fingerprint", name)
		}
	}
}

func TestReadUsesLastLinesOnly(t *testing.T) {
	tail := append([]string{"java.lang.OutOfMemoryError"}, make([]string, MaxTail)...)
	if got := Read(End{Exit: exited(1), Tail: tail}).Category; got != reports.CrashGeneral {
		t.Errorf("%s", got)
	}
}

func TestCauseIsShortPlainText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]string{"panic: ", "é", "\x1b[31m", "\xff", "\x00", "Error", "x", "9", " at a.b(", "\t"}), 0, 300).Draw(t, "line")
		r := Read(End{Exit: exited(1), Tail: []string{strings.Join(text, "")}})
		if len(r.Cause) > reports.MaxCause || !utf8.ValidString(r.Cause) || validate.HasControl(r.Cause) {
			t.Fatalf("%q", r.Cause)
		}
	})
}

func TestRefusedNamesCommand(t *testing.T) {
	cases := []struct {
		rule   string
		code   int
		tail   string
		reason fleet.Reason
		names  string
	}{
		{"missing command in bash", 127, "/usr/bin/bash: line 1: nosuch: command not found", fleet.ReasonCommandMissing, `"nosuch"`},
		{"missing command in dash", 127, "sh: 1: nosuch: not found", fleet.ReasonCommandMissing, `"nosuch"`},
		{"after exec", 126, "bash: line 1: exec: /etc/passwd: cannot execute: Permission denied", fleet.ReasonNotExecutable, `"/etc/passwd"`},
		{"missing file", 127, "bash: line 1: ./run.sh: No such file or directory", fleet.ReasonCommandMissing, `"./run.sh"`},
		{"missing interpreter", 127, "bash: line 1: ./run.sh: cannot execute: required file not found", fleet.ReasonCommandMissing, `"./run.sh"`},
		{"not executable", 126, "bash: line 1: ./run.sh: Permission denied", fleet.ReasonNotExecutable, `"./run.sh"`},
		{"a directory", 126, "bash: line 1: /tmp: Is a directory", fleet.ReasonNotExecutable, `"/tmp"`},
		{"program of another architecture", 126, "bash: line 1: ./a.out: cannot execute binary file: Exec format error", fleet.ReasonNotExecutable, `"./a.out"`},
		{"error followed by other output", 127, "bash: line 1: nosuch: command not found\nbye", fleet.ReasonCommandMissing, `"nosuch"`},
		{"exit code of a server", 127, "I am done", "", ""},
		{"error with another exit code", 1, "bash: line 1: nosuch: command not found", "", ""},
		{"missing library", 127, "./server: error while loading shared libraries: libx.so: cannot open shared object file", "", ""},
	}
	for _, c := range cases {
		reason, message, ok := Refused(c.code, lines(c.tail))
		if reason != c.reason || ok != (c.reason != "") || !strings.Contains(message, c.names) {
			t.Errorf("%s: %s %q", c.rule, reason, message)
		}
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want []string
		cut  bool
	}{{"", 3, nil, false}, {"a", 3, []string{"a"}, false}, {"a\r\nb\n", 3, []string{"a", "b"}, false}, {"a\n\nb", 2, []string{"", "b"}, true}} {
		if got, cut := Lines([]byte(c.text), c.n); !slices.Equal(got, c.want) || cut != c.cut {
			t.Errorf("%q: %q, %v", c.text, got, cut)
		}
	}
}
