package process

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/confine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// wrapped is how a run's wrapper is started. Close it.
type wrapped struct {
	sh        string
	argv, env []string
	// environ is the command's environment, for confine.Main. Nil for a run that is not
	// confined: its command has the wrapper's environment.
	environ *os.File
}

func (w wrapped) close() {
	if w.environ != nil {
		_ = w.environ.Close()
	}
}

// wrapped makes ready to hold a run to its limits, and is how its wrapper is started;
// see argvMark. Unavailable when the host has no memory for it.
//
// The wrapper of a confined run is not confined itself, so it has nothing of the
// command's environment but the marks: a dynamic linker runs libraries that LD_AUDIT and
// LD_PRELOAD name, a shell runs programs from PATH and the file that BASH_ENV names.
func (r *Runtime) wrapped(s runtime.Spec, confined string) (w wrapped, err error) {
	w.env = append(slices.Clip(s.Env), agentName+"="+r.owner)
	if confined != "" {
		if w.environ, err = confine.Handed(w.env); err != nil {
			return w, errs.As(errs.Unavailable, "process.Start", err)
		}
		w.env = append(marks(w.env), "PATH="+cmp.Or(os.Getenv("PATH"), defaultPath))
	}
	w.sh = r.wrapperFor(w.env)
	joins, refused := r.limiter.Prepare(s.InstanceID, s.Limits)
	if refused != nil {
		r.unlimited.Do(func() {
			r.log.Warn("the host refuses limits: instances run, and are not held to them", "cause", refused)
		})
	}
	var join strings.Builder
	for _, file := range joins {
		join.WriteString("printf 0 >" + quote(file) + "\n")
	}
	become := confined + ` "$3" -c "$1"`
	if words, ok := plain(s.Command, s.Env); ok && confined == "" && runnable(words[0], s.Dir, s.Env) {
		become = strings.Join(words, " ")
	}
	w.argv = []string{"sh", "-c", wrapper, argvMark, s.Command, s.RunDir, r.shell, join.String(), become}
	return w, nil
}

// defaultPath is where a wrapper finds programs when the agent has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// marks are the variables of an environment that a later agent reads from the wrapper:
// whose run it is, and its token.
func marks(env []string) (marks []string) {
	for _, v := range env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case markName, agentName, tokenName:
			marks = append(marks, v)
		}
	}
	return marks
}

// confined is what has a command run confined, as words of a shell; empty for one that
// is not. Invalid, with what to do about it, when the host cannot confine it so.
func (r *Runtime) confined(s runtime.Spec) (string, error) {
	c := s.Confine
	c.ReadOnlyTemplates = false // its files see to that
	if c == (fleet.Confine{}) {
		return "", nil
	}
	if len(r.confine) == 0 {
		return "", errs.New(errs.Invalid, "this program cannot confine what it runs")
	}
	order, err := confine.Plan(c, s.Dir, s.TmpDir)
	if err != nil {
		return "", err
	}
	var words []string
	for _, w := range append(slices.Clip(r.confine), order) {
		words = append(words, quote(w))
	}
	return strings.Join(words, " "), nil
}

// quote makes one word of a shell of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// wrapperFor chooses the wrapping shell: the small one, unless a variable has a
// name like "a.b", which a plain sh drops and bash hands on.
func (r *Runtime) wrapperFor(env []string) string {
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if strings.ContainsFunc(name, func(c rune) bool { return c != '_' && !letter(c) && (c < '0' || c > '9') }) {
			return r.shell
		}
	}
	return r.sh
}

func letter(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
