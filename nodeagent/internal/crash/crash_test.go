package crash

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
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

func TestWhatKindOfFailureItWas(t *testing.T) {
	cases := []struct {
		rule string
		end  End
		want fleet.CrashCategory
	}{
		{"the kernel says memory", End{Exit: &fleet.Exit{Code: 137, Known: true, OOM: true}}, fleet.CrashOutOfMemory},
		{"java says memory", End{Exit: exited(1), Tail: lines("java.lang.OutOfMemoryError: Java heap space")}, fleet.CrashOutOfMemory},
		{"memory comes before what it led to", End{Exit: exited(1), Tail: lines("java.net.BindException: x\nOutOfMemoryError")}, fleet.CrashOutOfMemory},
		{"calls without end", End{Exit: exited(1), Tail: lines("java.lang.StackOverflowError")}, fleet.CrashStackOverflow},
		{"calls without end in go", End{Exit: exited(2), Tail: lines("runtime: goroutine stack exceeds 1000000000-byte limit")}, fleet.CrashStackOverflow},
		{"no such class", End{Exit: exited(1), Tail: lines("Caused by: java.lang.ClassNotFoundException: a.B")}, fleet.CrashClassNotFound},
		{"no such jar", End{Exit: exited(1), Tail: lines("Error: Unable to access jarfile server.jar")}, fleet.CrashClassNotFound},
		{"the port is taken", End{Exit: exited(1), Tail: lines("**** FAILED TO BIND TO PORT!")}, fleet.CrashPortBind},
		{"the port is taken, in go", End{Exit: exited(1), Tail: lines("listen tcp :25565: bind: address already in use")}, fleet.CrashPortBind},
		{"too late", End{Reason: fleet.ReasonStartTimeout, Exit: exited(137), Tail: lines("OutOfMemoryError")}, fleet.CrashStartTimeout},
		{"serves no more", End{Reason: fleet.ReasonUnhealthy, Exit: exited(137)}, fleet.CrashUnhealthy},
		{"clean", End{Exit: exited(0)}, fleet.CrashClean},
		{"general", End{Exit: exited(1)}, fleet.CrashGeneral},
		{"interrupted", End{Exit: exited(130)}, fleet.CrashInterrupted},
		{"aborted", End{Exit: exited(134)}, fleet.CrashAborted},
		{"killed", End{Exit: exited(137)}, fleet.CrashKilled},
		{"segfault", End{Exit: exited(139)}, fleet.CrashSegfault},
		{"terminated", End{Exit: exited(143)}, fleet.CrashTerminated},
		{"another code", End{Exit: exited(42)}, fleet.CrashUnknown},
		{"nobody saw it", End{Exit: &fleet.Exit{}}, fleet.CrashUnknown},
		{"never started", End{}, fleet.CrashUnknown},
	}
	for _, c := range cases {
		if got := Read(c.end).Category; got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestTheLineThatSaysWhy(t *testing.T) {
	cases := []struct{ rule, tail, want string }{
		{"the root of a chain", trace, "Caused by: java.io.IOException: chunk 33 of /srv/instances/abc123/world at 0x7f001122"},
		{"behind a logger's prefix and colours", "\x1b[31m[12:00:00] [Server thread/ERROR]: java.lang.IllegalStateException: no\x1b[0m\nbye", "java.lang.IllegalStateException: no"},
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

func TestTheEndOfTheConsoleSaysMoreThanItsBeginning(t *testing.T) {
	const early = "[12:00:00 WARN]: failed to load a.jar\njava.lang.IllegalStateException: a plugin\n\tat a.B.c(B.java:1)\n"
	for _, c := range []struct {
		rule, tail, want string
		late             int
	}{
		{"a complaint of the last second", early + "ERROR: cannot write the world", "cannot write the world", 1},
		{"the plainest line of the last second", early + "panic: x\nERROR: failed late", "panic: x", 2},
		{"the last trace, where the last second says nothing", early + "Error: no such option\nbye", "java.lang.IllegalStateException: a plugin", 1},
		{"the last trace, where the last second is silent", early + "[12:00:01 WARN]: failed again", "java.lang.IllegalStateException: a plugin", 0},
		{"a plain line before a warning", "Error: no such option\n[12:00:01 WARN]: failed again\nbye", "Error: no such option", 1},
		{"an early warning, where there is nothing else", "[12:00:01 WARN]: failed again\nbye", "failed again", 1},
	} {
		if got := Read(End{Exit: exited(1), Tail: lines(c.tail), Late: c.late}).Cause; got != c.want {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
	killed := End{Exit: &fleet.Exit{Code: 137, Signal: "KILL", Known: true}, Tail: lines(early), Late: 3}
	for reason, want := range map[fleet.Reason]string{
		fleet.ReasonKilledBySignal: fleet.CauseKilled,
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
	if got := Read(killed); got.Category != fleet.CrashOutOfMemory || !strings.Contains(got.Cause, "heap") {
		t.Errorf("SIGKILL after its own words: %+v", got)
	}
}

func TestEqualCausesShareAFingerprint(t *testing.T) {
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

func TestOnlyTheEndOfAConsoleIsRead(t *testing.T) {
	tail := append([]string{"java.lang.OutOfMemoryError"}, make([]string, MaxTail)...)
	if got := Read(End{Exit: exited(1), Tail: tail}).Category; got != fleet.CrashGeneral {
		t.Errorf("%s", got)
	}
}

func TestACauseIsShortPlainText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]string{"panic: ", "é", "\x1b[31m", "\xff", "\x00", "Error", "x", "9", " at a.b(", "\t"}), 0, 300).Draw(t, "line")
		r := Read(End{Exit: exited(1), Tail: []string{strings.Join(text, "")}})
		if len(r.Cause) > fleet.MaxCause || !utf8.ValidString(r.Cause) || fleet.HasControl(r.Cause) {
			t.Fatalf("%q", r.Cause)
		}
	})
}

func TestAShellsRefusalIsToldByName(t *testing.T) {
	cases := []struct {
		rule   string
		code   int
		tail   string
		reason fleet.Reason
		names  string
	}{
		{"bash does not find it", 127, "/usr/bin/bash: line 1: nosuch: command not found", fleet.ReasonCommandMissing, `"nosuch"`},
		{"dash does not find it", 127, "sh: 1: nosuch: not found", fleet.ReasonCommandMissing, `"nosuch"`},
		{"after exec", 126, "bash: line 1: exec: /etc/passwd: cannot execute: Permission denied", fleet.ReasonNotExecutable, `"/etc/passwd"`},
		{"no such file", 127, "bash: line 1: ./run.sh: No such file or directory", fleet.ReasonCommandMissing, `"./run.sh"`},
		{"its interpreter is missing", 127, "bash: line 1: ./run.sh: cannot execute: required file not found", fleet.ReasonCommandMissing, `"./run.sh"`},
		{"not executable", 126, "bash: line 1: ./run.sh: Permission denied", fleet.ReasonNotExecutable, `"./run.sh"`},
		{"a directory", 126, "bash: line 1: /tmp: Is a directory", fleet.ReasonNotExecutable, `"/tmp"`},
		{"another machine's program", 126, "bash: line 1: ./a.out: cannot execute binary file: Exec format error", fleet.ReasonNotExecutable, `"./a.out"`},
		{"said before something else", 127, "bash: line 1: nosuch: command not found\nbye", fleet.ReasonCommandMissing, `"nosuch"`},
		{"a server's own code", 127, "I am done", "", ""},
		{"said, but ended otherwise", 1, "bash: line 1: nosuch: command not found", "", ""},
		{"a library is missing", 127, "./server: error while loading shared libraries: libx.so: cannot open shared object file", "", ""},
	}
	for _, c := range cases {
		reason, message, ok := Refused(c.code, lines(c.tail))
		if reason != c.reason || ok != (c.reason != "") || !strings.Contains(message, c.names) {
			t.Errorf("%s: %s %q", c.rule, reason, message)
		}
	}
}

func TestTheLastLinesOfAText(t *testing.T) {
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
