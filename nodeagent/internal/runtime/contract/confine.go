package contract

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// confineCommand makes a test program run confine.Main.
const confineCommand = "confine"

// confining returns the command that does.
func confining() []string { return []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), confineCommand} }

// RunConfined tests what runtimes guarantee for runs that the host confines.
func RunConfined(t *testing.T, make Maker) {
	t.Helper()
	for name, test := range map[string]func(*subject){
		"a run has only its user's rights":                   otherUser,
		"a user can open its output and input by name":       ownOutput,
		"programs gain no privileges":                        noNewPrivileges,
		"a private tmp is removed with the run":              privateTmp,
		"the exit of a confined run is known":                confinedEnd,
		"unsupported confinement is rejected":                refusedConfinement,
		"code named by the environment does not run as root": cleanEnvironment,
		"a confined run is found with its token":             foundConfined,
	} {
		t.Run(name, func(t *testing.T) {
			host := Host{Dir: shortDir(t), Owner: "test-" + strconv.Itoa(os.Getpid()), Confine: confining()}
			s := &subject{T: t, host: host, maker: make}
			s.needs(os.Geteuid() == 0, "only root can use all kinds of confinement")
			test(s)
		})
	}
}

// stranger is the number of a user that the host does not know.
const stranger = "61234"

// confined returns a run in a directory that belongs to the stranger.
func (s *subject) confined(command string) (spec runtime.Spec) {
	s.Helper()
	spec = s.spec(command)
	spec.Confine.User = stranger
	number, err := strconv.Atoi(stranger)
	if err != nil {
		s.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(spec.Dir), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.Chown(spec.Dir, number, number); err != nil {
		s.Fatal(err)
	}
	return spec
}

func otherUser(s *subject) {
	spec := s.confined(`id -u >got; id -g >>got; id -G >>got; cat /proc/1/environ >/dev/null 2>&1 || echo refused >>got; exec cat`)
	p := s.start(s.runtime(), spec)
	want := strings.Repeat(stranger+"\n", 3) + "refused\n"
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == want })
	if !p.Running() {
		s.Error("it has ended")
	}
}

func ownOutput(s *subject) {
	spec := s.confined(`echo out >>/dev/stdout; echo err >>/dev/stderr; read line </dev/stdin; echo "$line" >got; exec cat`)
	p := s.start(s.runtime(), spec)
	s.eventually(spec.LogPath, func(l string) bool { return strings.Contains(l, "out\n") && strings.Contains(l, "err\n") })
	s.write(p, "hello")
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == "hello\n" })
}

func noNewPrivileges(s *subject) {
	spec := s.spec(`grep NoNewPrivs /proc/self/status >got; exec cat`)
	spec.Confine.NoNewPrivileges = true
	s.start(s.runtime(), spec)
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == "NoNewPrivs:\t1\n" })
}

func privateTmp(s *subject) {
	name := "/tmp/of-" + strconv.Itoa(os.Getpid())
	spec := s.confined("")
	spec.Command = `echo mine >` + name + ` && cat ` + name + ` >` + spec.Dir + `/got; exec cat`
	spec.Confine.PrivateTmp = true
	p := s.start(s.runtime(), spec)
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == "mine\n" })
	if _, err := os.Stat(name); err == nil {
		s.Error("it is not private")
	}
	own := filepath.Join(spec.TmpDir, filepath.Base(name))
	if _, err := os.Stat(own); err != nil {
		s.Errorf("it is not below the run's directory, whose size is measured: %v", err)
	}
	if err := p.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	if _, err := os.Stat(own); err == nil {
		s.Error("it remains after the run")
	}
}

func confinedEnd(s *subject) {
	spec := s.confined("exit 7")
	spec.Confine.PrivateTmp, spec.Confine.NoNewPrivileges = true, true
	p := s.start(s.runtime(), spec)
	if e := s.exit(p); e.Code != 7 || !e.Known {
		s.Errorf("exit %+v", e)
	}
}

// library builds a library that reports who loads it, for LD_PRELOAD and LD_AUDIT.
const library = `
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
extern char *program_invocation_name;
__attribute__((constructor)) static void report(void) {
	FILE *f = fopen(REPORT, "a");
	if (!f) return;
	fprintf(f, NAME " %d %s\n", (int)geteuid(), program_invocation_name);
	fclose(f);
}
unsigned int la_version(unsigned int version) { return version; }
`

// cleanEnvironment starts a run whose template has libraries, programs and a script, and whose
// environment makes programs load or run them.
func cleanEnvironment(s *subject) {
	Needs(s.T, "gcc")
	spec := s.confined(`sleep 0; exit 3`)
	report, bin := filepath.Join(spec.Dir, "report"), filepath.Join(spec.Dir, "bin")
	build := func(name string) string {
		lib := filepath.Join(spec.Dir, name+".so")
		gcc := exec.Command("gcc", "-shared", "-fPIC", "-o", lib, "-DNAME="+strconv.Quote(name), "-DREPORT="+strconv.Quote(report), "-xc", "-")
		gcc.Stdin = strings.NewReader(library)
		if out, err := gcc.CombinedOutput(); err != nil {
			s.Fatalf("%v: %s", err, out)
		}
		return lib
	}
	preload, audit := build("preload"), build("audit")
	if err := os.Mkdir(bin, 0o755); err != nil {
		s.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(report, nil, 0), os.Chmod(report, 0o666)); err != nil {
		s.Fatal(err)
	}
	for _, name := range []string{"sleep", "sh", "bash", "script"} {
		text := "#!/bin/sh\necho " + name + " $(/usr/bin/id -u) >>'" + report + "'\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			s.Fatal(err)
		}
	}
	script := filepath.Join(bin, "script")
	spec.Env = append(spec.Env, "PATH="+bin+":"+os.Getenv("PATH"), "LD_PRELOAD="+preload, "LD_AUDIT="+audit,
		"BASH_ENV="+script, "ENV="+script, "a.b=needs bash", "PS4=$(sh "+script+")", "SHELLOPTS=xtrace", "BASH_FUNC_trap%%=() { sh "+script+"; }")
	if e := s.exit(s.start(s.runtime(), spec)); e.Code != 3 {
		s.Errorf("exit %+v", e)
	}
	said := said(report)
	for line := range strings.Lines(said) {
		if strings.Fields(line)[1] != stranger {
			s.Errorf("ran as another user: %s", line)
		}
	}
	for _, way := range []string{"preload", "audit", "sleep", "script"} {
		if !strings.Contains(said, way+" "+stranger) {
			s.Errorf("the run itself did not use %s:\n%s", way, said)
		}
	}
}

func foundConfined(s *subject) {
	r, spec := s.runtime(), s.confined("exec cat")
	spec.Env = append(spec.Env, "ORRERY_TOKEN=sesame", "SECRET=of the command")
	p := s.start(r, spec)
	found := s.find(r, filepath.Dir(spec.Dir))[spec.InstanceID]
	if found.Identity != p.Identity() || !slices.Contains(found.Env, "ORRERY_TOKEN=sesame") || slices.Contains(found.Env, "SECRET=of the command") {
		s.Errorf("found %+v", found)
	}
	s.eventually(filepath.Join("/proc", strconv.Itoa(p.Identity().Server.PID), "environ"), func(env string) bool {
		return strings.Contains(env, "SECRET=of the command")
	})
}

func refusedConfinement(s *subject) {
	r, spec := s.runtime(), s.spec("cat")
	spec.Confine.User = "no-such-user-here"
	if p, err := r.Start(s.Context(), spec); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "does not exist") {
		s.Errorf("an unknown user: %v, %v", p, err)
	}
	if err := os.Chmod(filepath.Dir(spec.Dir), 0o700); err != nil {
		s.Fatal(err)
	}
	spec.Confine = isolation.Confine{User: stranger}
	if p, err := r.Start(s.Context(), spec); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "may not enter") {
		s.Errorf("a directory it may not enter: %v, %v", p, err)
	}
}
