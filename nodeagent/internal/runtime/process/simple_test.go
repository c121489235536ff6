package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSimpleCommand(t *testing.T) {
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
		words, ok := simpleCommand(command, nil)
		if got := strings.Join(words, " "); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", command, got, ok)
		}
	}
	for _, variable := range []string{"BASH_ENV=/x", "BASH_FUNC_java%%=() { :; }", "SHELLOPTS=noglob"} {
		if _, ok := simpleCommand("exec sleep 1", []string{"A=b", variable}); ok {
			t.Errorf("with %s", variable)
		}
	}
}

func TestRunnable(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"script": "#!/bin/sh\n", "bare": "echo hello\n", "empty": "", "plan": "#!/bin/sh\n"} {
		mode := os.FileMode(0o755)
		if name == "plan" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=/nowhere", "PATH=relative:" + dir + ":/bin"}
	for program, want := range map[string]bool{
		"./script": true, dir + "/script": true, "script": true, "sh": true, "/bin/sh": true,
		"./bare": false, "bare": false, "./empty": false, "./plan": false, "./none": false, "none": false, dir: false, "./": false,
	} {
		if got := runnable(program, dir, env); got != want {
			t.Errorf("%s: %v", program, got)
		}
	}
	if runnable("sh", dir, nil) {
		t.Error("without a PATH")
	}
}

func TestSimpleCommandMatchesBash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		arguments := rapid.StringOfN(rapid.SampledFrom([]rune("ab1 ./_-+=:,@%$*~'\"#;&|<>(){}[]!?^\\`")), 0, 20, -1).Draw(t, "arguments")
		command := "exec /usr/bin/printf %s, x" + arguments
		words, ok := simpleCommand(command, nil)
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
