package process

import (
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/confine"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// wrapped is how a run's wrapper is started.
type wrapped struct {
	sh   string
	argv []string
}

// wrapped makes ready to hold a run to its limits, and is how its wrapper is started;
// see argvMark.
func (r *Runtime) wrapped(s runtime.Spec, confined string) wrapped {
	sh := r.wrapperFor(s.Env)
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
	return wrapped{sh, []string{"sh", "-c", wrapper, argvMark, s.Command, s.RunDir, r.shell, join.String(), become}}
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
