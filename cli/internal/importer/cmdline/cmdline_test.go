package cmdline

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestQuotedWordsReachTheProgramUnchanged(t *testing.T) {
	words := []string{"plain", "", "a b", "it's", `"x"`, "$HOME", "`id`", `back\slash`, "*", "-Xmx2G", "%PORT%", "new\nline", "{a,b}", "!x", "~"}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+QuoteAll(words, Quote)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("got %q, want %q", got, words)
	}
}

func TestVariablesOfSystemdAreStillReplaced(t *testing.T) {
	command := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s|' "+QuoteAll([]string{"$LIST", "${LIST}", "x$$y", `a"${ONE}"`, "`id`$ONE"}, QuoteExpanding))
	command.Env = []string{"LIST=a b", "ONE=1"}
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "a|b|a b|x$y|a\"1\"|`id`1|"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestHeap(t *testing.T) {
	for line, want := range map[string]int{
		"java -Xmx3G -jar a.jar": 3072, "java -Xms1G -Xmx512M": 512, "java -Xmx1048576k": 1024, "java -Xmx1073741824": 1024, "java -Xmx1t": 1 << 20,
		"java -jar a.jar": 0, "java -Xmxlots": 0, "java -Dx=-Xmx3G": 0,
	} {
		if got := Heap(line); got != want {
			t.Errorf("%q has a heap of %d MiB, want %d", line, got, want)
		}
	}
}

func TestFindPort(t *testing.T) {
	for line, want := range map[string]struct {
		port int
		line string
	}{
		"a --port 25565 nogui": {25565, "a --port %PORT% nogui"},
		"a --port=25565":       {25565, "a --port=%PORT%"},
		"a -p 25565":           {25565, "a -p %PORT%"},
		"a +port 27015":        {27015, "a +port %PORT%"},
		"a -p secret":          {0, "a -p secret"},
		"a --port 99999":       {0, "a --port 99999"},
		"a 25565":              {0, "a 25565"},
	} {
		port, words := FindPort(strings.Fields(line))
		if got := strings.Join(words, " "); port != want.port || got != want.line {
			t.Errorf("%q: got %d and %q", line, port, got)
		}
	}
}

func TestServerPort(t *testing.T) {
	for text, want := range map[string]int{"server-port=25570\r\n": 25570, "a=1\n server-port : 1\n": 1, "#server-port=1\n": 0, "server-port=99999": 0, "": 0} {
		if got := ServerPort([]byte(text)); got != want {
			t.Errorf("%q has the port %d, want %d", text, got, want)
		}
	}
}

func TestUnwrap(t *testing.T) {
	for line, want := range map[string][2]string{
		"/usr/bin/screen -dmS mc java -jar a.jar":         {"java -jar a.jar", "screen"},
		"screen -L -S mc -D -m ./start.sh":                {"./start.sh", "screen"},
		"/usr/bin/tmux new-session -d -s mc -c /srv java": {"java", "tmux"},
		"java -jar a.jar":                                 {"java -jar a.jar", ""},
		"screen -dmS mc":                                  {"", "screen"},
	} {
		inner, program := Unwrap(strings.Fields(line))
		if want[1] == "" {
			program = ""
		}
		if got := strings.Join(inner, " "); got != want[0] || program != want[1] {
			t.Errorf("%q: got %q in %q", line, got, program)
		}
	}
}
