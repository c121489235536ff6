package contract

import (
	"errors"
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
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// RunConfined tests what runtimes guarantee for runs that the host confines.
func RunConfined(t *testing.T, make Maker) {
	t.Helper()
	for name, test := range map[string]func(*subject){
		"a run has only its user's rights":                   otherUser,
		"a run with a number of its own gains no privileges": ownNumber,
		"a run reaches its directory below closed parents":   closedParents,
		"a run does not see processes of other users":        hiddenProcesses,
		"a run with hidden processes is adopted by its pid":  hiddenAdopted,
		"a user can open its output and input by name":       ownOutput,
		"programs gain no privileges":                        noNewPrivileges,
		"a private tmp is removed with the run":              privateTmp,
		"the exit of a confined run is known":                confinedEnd,
		"unsupported confinement is rejected":                refusedConfinement,
		"code named by the environment does not run as root": cleanEnvironment,
		"a confined run is found with its token":             foundConfined,
	} {
		t.Run(name, func(t *testing.T) {
			host := Host{Dir: shortDir(t), Owner: "test-" + strconv.Itoa(os.Getpid())}
			s := &subject{T: t, host: host, maker: make}
			s.needs(os.Geteuid() == 0, "only root can use all kinds of confinement")
			var err error
			if s.host.View, err = confine.Probe(); err != nil {
				t.Fatal(err)
			}
			test(s)
		})
	}
}

// stranger is the number of a user that the host does not know, and strangerUID the same number.
const (
	stranger    = "61234"
	strangerUID = 61234
)

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

func ownNumber(s *subject) {
	spec := s.confined(`id -u >got; id -g >>got; id -G >>got; grep NoNewPrivs /proc/self/status >>got; cat ` + "/proc/$PPID/status" + ` | grep Uid >>got; exec cat`)
	spec.Confine.User, spec.UID = "", strangerUID
	s.start(s.runtime(), spec)
	want := strings.Repeat(stranger+"\n", 3) + "NoNewPrivs:\t1\nUid:\t" + strings.Repeat("\t"+stranger, 4)[1:] + "\n"
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == want })
}

// closedParents starts runs below a directory of root that nobody else may enter, by its path and by one
// with a symbolic link.
func closedParents(s *subject) {
	closed := filepath.Join(s.host.Dir, "closed")
	spec := s.confined(`pwd -P >got && cd / && cd "$HOME" && echo x >>"$HOME/got"; ls ` + closed + ` >>got 2>/dev/null || echo refused >>"$HOME/got"; exec cat`)
	dir := filepath.Join(closed, "data", "one")
	if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o700), os.Mkdir(filepath.Join(closed, "secret"), 0o755), os.Rename(spec.Dir, dir), os.Symlink(closed, filepath.Join(s.host.Dir, "link"))); err != nil {
		s.Fatal(err)
	}
	linked := filepath.Join(s.host.Dir, "link", "data", "one")
	for _, one := range []struct {
		parent     os.FileMode
		path, real string
	}{{0o755, dir, dir}, {0o755, linked, dir}, {0o700, dir, dir}, {0o700, linked, linked}} { // the cover of a closed parent has no links
		if err := os.Chmod(s.host.Dir, one.parent); err != nil {
			s.Fatal(err)
		}
		path := one.path
		spec.Dir, spec.Env = path, []string{"ORRERY_INSTANCE_ID=" + spec.InstanceID, "PATH=" + os.Getenv("PATH"), "HOME=" + path}
		p := s.start(s.runtime(), spec)
		s.eventually(filepath.Join(dir, "got"), func(got string) bool { return got == one.real+"\nx\nrefused\n" })
		if err := p.Kill(s.Context()); err != nil {
			s.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "got")); err != nil {
			s.Fatal(err)
		}
	}
	if fi, err := os.Stat(closed); err != nil || fi.Mode().Perm() != 0o700 {
		s.Errorf("the parent was changed: %v, %v", fi, err)
	}
}

func hiddenProcesses(s *subject) {
	spec := s.confined(`stat -c %u /proc/[0-9]* 2>/dev/null | sort -u >got; ls -d /proc/1 /proc/` + strconv.Itoa(os.Getpid()) + ` >>got 2>/dev/null || echo hidden >>got; exec cat`)
	s.start(s.runtime(), spec)
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == stranger+"\nhidden\n" })
	if all, err := filepath.Glob("/proc/[0-9]*"); err != nil || !slices.Contains(all, "/proc/1") {
		s.Errorf("the host's own /proc hides processes: %v", err)
	}
}

func hiddenAdopted(s *subject) {
	spec := s.confined(`while read -r line; do echo "$line" >got; done`)
	id := s.startInAgentAndKillIt(spec)
	p := s.adopt(s.runtime(), spec, id)
	if !p.Running() {
		s.Fatal("it has ended")
	}
	s.write(p, "still here")
	s.eventually(filepath.Join(spec.Dir, "got"), func(got string) bool { return got == "still here\n" })
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
		"BASH_ENV="+script, "ENV="+script, "PS4=$(sh "+script+")", "SHELLOPTS=xtrace")
	for _, more := range [][]string{nil, {"a.b=needs bash", "BASH_FUNC_trap%%=() { sh " + script + "; }"}} {
		spec.Env = append(spec.Env, more...)
		if e := s.exit(s.start(s.runtime(), spec)); e.Code != 3 {
			s.Errorf("exit %+v with %q", e, more)
		}
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
	if found.Identity != p.Identity() || !slices.Contains(found.Env, "ORRERY_TOKEN=sesame") {
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
	s.host.View = confine.View{} // as for an agent that may not mount
	r, spec.Confine = s.runtime(), isolation.Confine{User: stranger}
	if p, err := r.Start(s.Context(), spec); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "may not enter") {
		s.Errorf("a directory it may not enter: %v, %v", p, err)
	}
}
