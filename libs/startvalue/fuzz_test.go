package startvalue

import (
	"bytes"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"github.com/orreryhq/orrery/libs/fleet"
)

// harmless is a value without special meaning to shells and programs.
const harmless = "harmless"

var hostile = []string{
	"$(touch pwned)", "`touch pwned`", "'; touch pwned #", `"; touch pwned #`, "a b  c", "*", "~", "{a,b}", `\`, `\"`, "$HOME", "${IFS}", "%X%", "%%", "%OTHER%",
	"a\nb", "&& touch pwned", "!!", "", "#", "=", "a[$(touch pwned)]", strings.Repeat("x", 64<<10),
}

// arguments returns the words of every simple command with a reference, expanded with a value. ok is
// false if the expansion would run a program.
func arguments(t *testing.T, c Command, value string) (all [][]string, ok bool) {
	file, err := syntax.NewParser().Parse(strings.NewReader(c.Text), "")
	if err != nil {
		t.Fatalf("%s is no shell program: %v", c.Text, err)
	}
	env := expand.ListEnviron(append(slices.Clone(c.Env), "HOME=/home", "A=a b")...)
	ok = true
	syntax.Walk(file, func(n syntax.Node) bool {
		call, is := n.(*syntax.CallExpr)
		if !is {
			return true
		}
		from, to := call.Pos().Offset(), call.End().Offset()
		if !strings.Contains(c.Text[from:to], "ORRERY_START_") {
			return true
		}
		words, err := expand.Fields(&expand.Config{Env: env, NoUnset: false}, call.Args...)
		if err != nil {
			ok = false
		}
		for n, w := range words {
			if value != "" {
				words[n] = strings.ReplaceAll(w, value, "\x00")
			}
		}
		all = append(all, words)
		return true
	})
	return all, ok
}

// FuzzNoStartValueChangesTheWordsOfACommand expands accepted commands with a harmless and another
// value. Both must have the same words except for the value.
func FuzzNoStartValueChangesTheWordsOfACommand(f *testing.F) {
	for _, command := range []string{
		`java -Dm=%X% -jar s.jar "%X%"`, `./run 'a %X% b'`, `exec env A=%X% ./run "$HOME/%X%"`, `A=%X% ./run; ./run %X%`, `./run "a\\%X%"`, `bash -c '%X%'`,
		"./run %X% # '%X%", `./run "'%X%'"`, `f() { ./run %X%; }; f`, `./run a"b"'%X%'c`, `if ./run %X%; then ./run b; fi`, `./run $A%X%`,
	} {
		for _, value := range hostile[:8] {
			f.Add(command, value)
		}
	}
	f.Fuzz(func(t *testing.T, command, value string) {
		if strings.ContainsRune(command, 0) || strings.ContainsRune(value, 0) || strings.Contains(command, harmless) {
			return
		}
		of := func(value string) (Command, error) {
			return Values{Start: map[string]string{"X": value}}.Command(fleet.Plan{Command: command})
		}
		safe, err := of(harmless)
		if err != nil || len(safe.Env) == 0 {
			return
		}
		other, err := of(value)
		if err != nil { // the value is rejected
			return
		}
		if safe.Text != other.Text {
			t.Fatalf("%q becomes %s or %s", command, safe.Text, other.Text)
		}
		want, known := arguments(t, safe, harmless)
		got, _ := arguments(t, other, value)
		if !known {
			return
		}
		for n := range want {
			for i := range want[n] {
				if n >= len(got) || i >= len(got[n]) || value != "" && got[n][i] != want[n][i] && !strings.Contains(want[n][i]+command, value) {
					t.Fatalf("%s has the words %q, and with %q %q", other.Text, want[n], value, got)
				}
			}
			if len(got[n]) != len(want[n]) {
				t.Fatalf("%s has the words %q, and with %q %q", other.Text, want[n], value, got[n])
			}
		}
	})
}

// FuzzShellsReadTheSameWords runs commands in real shells. For any value, the program must get the same
// number of arguments, with the value in one of them.
func FuzzShellsReadTheSameWords(f *testing.F) {
	for _, value := range hostile {
		f.Add(value)
	}
	commands := []string{
		`/usr/bin/printf '<%s>' a%X%b end`, `/usr/bin/printf '<%s>' "a%X%b" end`, `/usr/bin/printf '<%s>' 'a%X%b' end`, `/usr/bin/printf '<%s>' 'a'"%X%"b end`,
		`exec /usr/bin/env A=a%X%b /usr/bin/printf '<%s>' a%X%b end`, `B=%X% /usr/bin/printf '<%s>' "a""%X%"'b' end; :`, `{ /usr/bin/printf '<%s>' a%X%b end || exit 3; }`,
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.ContainsRune(value, 0) || len(value) > 100<<10 {
			return
		}
		dir := t.TempDir()
		for _, command := range commands {
			c, err := Values{Start: map[string]string{"X": value}}.Command(fleet.Plan{Command: command})
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			for _, shell := range []string{"sh", "bash"} {
				run := exec.CommandContext(t.Context(), shell, "-c", c.Text)
				var said bytes.Buffer
				run.Dir, run.Env, run.Stdout, run.Stderr = dir, append([]string{"PATH=/usr/bin:/bin"}, c.Env...), &said, &said
				err := run.Run()
				var failed *exec.ExitError
				if err != nil && !errors.As(err, &failed) {
					t.Fatal(err)
				}
				if want := "<a" + value + "b><end>"; said.String() != want {
					t.Errorf("%s runs %s and prints %q, want %q", shell, c.Text, said.String(), want)
				}
			}
		}
	})
}
