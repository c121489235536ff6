package process

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// wrapperStart says how to start a run's wrapper. Close it.
type wrapperStart struct {
	sh        string
	argv, env []string
	// environ is the command's environment for confine.Main; nil for a run that is not
	// confined, whose command has the wrapper's environment.
	environ *os.File
}

func (w wrapperStart) close() {
	if w.environ != nil {
		_ = w.environ.Close()
	}
}

// prepareWrapper prepares the limits of a run and returns how to start its wrapper. It returns
// Unavailable if the host is out of memory.
//
// The wrapper of a confined run is not confined itself. So its environment has only the marks, and
// not the command's variables: LD_AUDIT, LD_PRELOAD, PATH and BASH_ENV make it execute other code.
func (r *Runtime) prepareWrapper(s runtime.Spec, confined string) (w wrapperStart, err error) {
	w.env = append(slices.Clip(s.Env), agentName+"="+r.owner)
	if confined != "" {
		if w.environ, err = confine.EnvironFile(w.env); err != nil {
			return w, errs.WrapAs(errs.Unavailable, "process.Start", err)
		}
		w.env = append(marks(w.env), "PATH="+cmp.Or(os.Getenv("PATH"), defaultPath))
	}
	w.sh = r.wrapperFor(w.env)
	joins, refused := r.limiter.Prepare(s.InstanceID, s.Limits)
	if refused != nil {
		r.unlimitedOnce.Do(func() {
			r.log.Warn("the host refuses limits: instances run without them", "cause", refused)
		})
	}
	var join strings.Builder
	for _, file := range joins {
		join.WriteString("printf 0 >" + Quote(file) + "\n")
	}
	become := confined + ` "$3" -c "$1"`
	if words, ok := simpleCommand(s.Command, s.Env); ok && confined == "" && runnable(words[0], s.Dir, s.Env) {
		become = strings.Join(words, " ")
	}
	w.argv = []string{"sh", "-c", wrapper, argvMark, s.Command, s.RunDir, r.shell, join.String(), become}
	return w, nil
}

// defaultPath is the wrapper's search path if the agent has no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// marks returns the variables that a later agent reads from the wrapper: instance, agent and token.
func marks(env []string) (marks []string) {
	for _, v := range env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case markName, agentName, tokenName:
			marks = append(marks, v)
		}
	}
	return marks
}

// confineWords returns the shell words that run a command confined; empty if it is not confined. It
// returns Invalid, with what to do, if the host cannot confine it.
func (r *Runtime) confineWords(s runtime.Spec) (string, error) {
	c := s.Confine
	c.ReadOnlyTemplates = false // that is done by file modes
	if c == (isolation.Confine{}) {
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
		words = append(words, Quote(w))
	}
	return strings.Join(words, " "), nil
}

// Quote quotes a text as one shell word.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// wrapperFor chooses the wrapping shell: sh, or bash if a variable has a name like "a.b", which a
// plain sh drops.
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
