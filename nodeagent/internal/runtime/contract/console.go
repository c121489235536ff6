package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
)

func verbatim(s *subject) {
	spec := s.spec("exec cat >got")
	p := s.start(s.runtime(), spec)
	lines := []string{
		`say "hi" 'there'`, `$HOME ${PATH} $(id) %H #{pid}`, `^A \n \\ \033 \x1b ; | & > <`, ";", `\;`, "Enter", "C-c", "^C", "-l", "~", "#", `'`, `"`, `\`,
		"äöü € 日本 🎮", "a\tb", " spaces  kept ", "", strings.Repeat("x", 4000), strings.Repeat("é", 2000), "second",
	}
	for _, l := range lines {
		s.write(p, l)
	}
	want := strings.Join(lines, "\n") + "\n"
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == want })
}

func wholeLines(s *subject) {
	const writers, each = 4, 5
	spec := s.spec("exec cat >got")
	p := s.start(s.runtime(), spec)
	var want []string
	var writing sync.WaitGroup
	for w := range writers {
		line := strings.Repeat(fmt.Sprint(w), 100)
		want = append(want, slices.Repeat([]string{line}, each)...)
		writing.Go(func() {
			for range each {
				if err := p.WriteLine(line); err != nil {
					s.Error(err)
				}
			}
		})
	}
	writing.Wait()
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool {
		lines := strings.Fields(got)
		slices.Sort(lines)
		return slices.Equal(lines, want)
	})
}

func unread(s *subject) {
	p := s.start(s.runtime(), s.spec("sleep 1000"))
	line := strings.Repeat("x", 4000)
	var err error
	for range 100 {
		if err = p.WriteLine(line); err != nil {
			break
		}
	}
	if !errs.Is(err, errs.Conflict) { // Unavailable would count as the agent's failure
		s.Errorf("err = %v, want Conflict", err)
	}
	if err := p.WriteLine(strings.Repeat("x", 5000)); !errs.Is(err, errs.Invalid) {
		s.Errorf("a line too long: %v", err)
	}
}

func environment(s *subject) {
	r := s.runtime()
	for _, own := range []string{"first", "second"} {
		spec := s.spec("exec env -0 >got")
		spec.Env = append(spec.Env, "OWN="+own, "ODD= a\"b'c$d;\\e\nf ")
		s.start(r, s.spec("sleep 1000")) // the first run must leave nothing to the others
		s.exit(s.start(r, spec))
		b, err := os.ReadFile(filepath.Join(spec.Dir, "got"))
		if err != nil {
			s.Fatal(err)
		}
		for _, v := range spec.Env {
			if !slices.Contains(strings.Split(string(b), "\x00"), v) {
				s.Errorf("%q is missing", v)
			}
		}
		for v := range strings.SplitSeq(strings.TrimSuffix(string(b), "\x00"), "\x00") {
			name, _, _ := strings.Cut(v, "=")
			shells := []string{"ORRERY_AGENT", "PWD", "OLDPWD", "SHLVL", "_"} // set by shells
			if !slices.Contains(spec.Env, v) && !slices.Contains(shells, name) {
				s.Errorf("%q was not given", v)
			}
		}
	}
}

func oddVariables(s *subject) {
	spec := s.spec("exec env >got")
	spec.Env = append(spec.Env, "spring.profiles.active=prod")
	s.exit(s.start(s.runtime(), spec))
	if got := said(filepath.Join(spec.Dir, "got")); !strings.Contains(got, "spring.profiles.active=prod") {
		s.Errorf("environment:\n%s", got)
	}
}

func lastWords(s *subject) {
	const lines = 20_000
	r := s.runtime()
	spec := s.spec(fmt.Sprintf("seq -f 'line %%.0f' %d; printf 'no end of line'", lines))
	s.exit(s.start(r, spec))
	if got, want := said(spec.LogPath), numbered(lines)+"no end of line"; got != want {
		s.Errorf("%d bytes of output, want %d", len(got), len(want))
	}
}

func appended(s *subject) {
	r, spec := s.runtime(), s.spec("echo 'to out'; echo 'to err' >&2")
	// A path with characters that shells and multiplexers interpret.
	spec.LogPath = filepath.Join(spec.Dir, `a "b" 'c' $HOME #{pid} %H ;`, "log")
	if err := os.Mkdir(filepath.Dir(spec.LogPath), 0o700); err != nil {
		s.Fatal(err)
	}
	s.exit(s.start(r, spec))
	s.exit(s.start(r, spec))
	if got := said(spec.LogPath); got != "to out\nto err\nto out\nto err\n" {
		s.Errorf("%q", got)
	}
}

func secret(s *subject) {
	spec := s.spec("exec sleep 1000")
	spec.Env = append(spec.Env, "TOKEN=sesame-"+spec.InstanceID)
	s.start(s.runtime(), spec)
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.Fatal(err)
	}
	for _, dir := range processes {
		b, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if strings.Contains(string(b), "sesame-"+spec.InstanceID) {
			s.Errorf("%q shows it", b)
		}
	}
	err = filepath.WalkDir(s.host.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if b, _ := os.ReadFile(path); strings.Contains(string(b), "sesame-"+spec.InstanceID) {
			s.Errorf("%s holds it", path)
		}
		return nil
	})
	if err != nil {
		s.Error(err)
	}
}

func lastLine(s *subject) {
	spec := s.spec("read line; exit 3")
	p := s.start(s.runtime(), spec)
	s.write(p, "end") // and is not held up by the end it brings about
	if e := s.exit(p); e.Code != 3 || e.Hangup {
		s.Errorf("exit %+v", e)
	}
}
