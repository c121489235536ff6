package process

import (
	"slices"
	"strings"

	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/confine"
)

// wrapperStart says how to start a run's wrapper.
type wrapperStart struct {
	sh        string
	argv, env []string
	// confined is nil for a run that is not confined.
	confined *confine.Confinement
	// joins are the control groups that enforce limits. The wrapper must be in them before it starts
	// anything.
	joins []string
}

// prepareWrapper prepares the limits and the confinement of a run and returns how to start its wrapper.
// It returns Invalid, with what to do, if the host cannot confine it.
func (r *Runtime) prepareWrapper(s runtime.Spec) (w wrapperStart, err error) {
	w.confined, err = confine.For(confine.Run{Confine: s.Confine, UID: s.UID, Dir: s.Dir, Tmp: s.TmpDir}, r.view)
	if err != nil {
		return w, err
	}
	w.env = append(slices.Clip(s.Env), agentName+"="+r.owner)
	w.sh = r.wrapperFor(w.env)
	var refused error
	if w.joins, refused = r.limiter.Prepare(s.InstanceID, s.Limits); refused != nil {
		r.warnUnlimited(refused)
	}
	become := `"$3" -c "$1"`
	if words, ok := simpleCommand(s.Command, s.Env); ok && runnable(words[0], s.Dir, s.Env) {
		become = strings.Join(words, " ")
	}
	w.argv = []string{"sh", "-c", wrapper, argvMark, s.Command, s.RunDir, r.shell, become}
	return w, nil
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
