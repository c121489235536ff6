package process

import (
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestACommandIsPlainOnlyIfAShellAddsNothing(t *testing.T) {
	for command, want := range map[string]string{
		"exec sleep 100":                     "sleep 100",
		"./start.sh --port=25565 world_1":    "./start.sh --port=25565 world_1",
		"  /usr/bin/java  -Xmx1G -jar s.jar": "/usr/bin/java -Xmx1G -jar s.jar",
		"exec exec":                          "exec",
		"sleep 100":                          "",
		"exec":                               "",
		"":                                   "",
		"exec -a name sleep":                 "",
		"A=./b ./c":                          "",
		"exec A=1":                           "",
		"./run $HOME":                        "",
		"./run ~/x":                          "",
		"./run 'a b'":                        "",
		"./run *":                            "",
		"./run; ./next":                      "",
		"./run\n./next":                      "",
		"./run\t1":                           "",
		"./run > log":                        "",
		"./run #":                            "",
		"./run ü":                            "",
	} {
		words, ok := plain(command, nil)
		if got := strings.Join(words, " "); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", command, got, ok)
		}
	}
	for _, variable := range []string{"BASH_ENV=/x", "BASH_FUNC_java%%=() { :; }", "SHELLOPTS=noglob"} {
		if _, ok := plain("exec sleep 1", []string{"A=b", variable}); ok {
			t.Errorf("with %s", variable)
		}
	}
}

func TestAPlainCommandIsWhatBashMakesOfIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arguments := rapid.StringOfN(rapid.SampledFrom([]rune("ab1 ./_-+=:,@%$*~'\"#;&|<>(){}[]!?^\\`")), 0, 20, -1).Draw(t, "arguments")
		command := "exec /usr/bin/printf %s, x" + arguments
		words, ok := plain(command, nil)
		if !ok {
			return
		}
		want, err := exec.Command("bash", "-c", command).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := exec.Command(words[0], words[1:]...).Output()
		if err != nil || string(got) != string(want) {
			t.Fatalf("%q, bash has %q: %v", got, want, err)
		}
	})
}
