package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// confineCommand has a test program confine itself.
const confineCommand = "confine"

// confining is the command that does.
func confining() []string { return []string{fmt.Sprintf("/proc/%d/exe", os.Getpid()), confineCommand} }

// RunConfined runs what is promised of runs that are confined by the host's means.
func RunConfined(t *testing.T, make Maker) {
	t.Helper()
	for name, test := range map[string]func(*subject){
		"a run has its user's rights and no others":               otherUser,
		"a user may write to its output and input by their names": ownOutput,
		"programs gain no rights":                                 noNewPrivileges,
		"a /tmp of its own goes with the run":                     privateTmp,
		"how a confined run ends is known":                        confinedEnd,
		"what the host cannot do is refused":                      refusedConfinement,
	} {
		t.Run(name, func(t *testing.T) {
			host := Host{Dir: shortDir(t), Owner: "test-" + strconv.Itoa(os.Getpid()), Confine: confining()}
			s := &subject{T: t, host: host, maker: make}
			s.needs(os.Geteuid() == 0, "only root can confine others in every way")
			test(s)
		})
	}
}

// stranger is a user no host knows, by number.
const stranger = "61234"

// confined is a run in a directory that the stranger may enter and owns.
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
		s.Error("it is everybody's")
	}
	own := filepath.Join(spec.TmpDir, filepath.Base(name))
	if _, err := os.Stat(own); err != nil {
		s.Errorf("it is not below its own directory, which is measured: %v", err)
	}
	if err := p.Kill(s.Context()); err != nil {
		s.Fatal(err)
	}
	if _, err := os.Stat(own); err == nil {
		s.Error("it outlived the run")
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

func refusedConfinement(s *subject) {
	r, spec := s.runtime(), s.spec("cat")
	spec.Confine.User = "no-such-user-here"
	if p, err := r.Start(s.Context(), spec); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "does not exist") {
		s.Errorf("a user that does not exist: %v, %v", p, err)
	}
	if err := os.Chmod(filepath.Dir(spec.Dir), 0o700); err != nil {
		s.Fatal(err)
	}
	spec.Confine = fleet.Confine{User: stranger}
	if p, err := r.Start(s.Context(), spec); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "may not pass") {
		s.Errorf("a directory it may not enter: %v, %v", p, err)
	}
}
