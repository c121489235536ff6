package autoscale

import (
	"fmt"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"

	"github.com/orreryhq/orrery/libs/cron"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

const (
	// maxCost bounds the evaluation of an expression, in units of CEL's cost model.
	maxCost = 10_000
	// maxDepth bounds the nesting of an expression.
	maxDepth = 50
	// maxFaults bounds how many faults of an expression an error names.
	maxFaults = 3
)

// The variables of the time of day. An expression that uses one is evaluated again when it changes.
const (
	variableMinute  = "minute"
	variableHour    = "hour"
	variableWeekday = "weekday"
)

// environment returns the variables and functions of expressions. There are no macros, so an expression
// has no loops.
func environment() (*cel.Env, error) {
	options := []cel.EnvOption{cel.StdLib(), cel.ClearMacros(), ext.Math(), cel.ParserRecursionLimit(maxDepth)}
	for _, name := range []string{"players", "slots", "free", "instances", "ready", "min", "max", variableMinute, variableHour, variableWeekday} {
		options = append(options, cel.Variable(name, cel.IntType))
	}
	return cel.NewCustomEnv(append(options, cel.Variable("tps", cel.DoubleType))...)
}

// expression returns the rule of an expression. The error names the position of each fault.
func expression(p scalepolicy.Policy) (func(scaling.Metrics, time.Time) scaling.Answer, error) {
	zone, err := cron.Zone(p.Timezone)
	if err != nil {
		return nil, err
	}
	env, err := environment()
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "autoscale.environment", err)
	}
	ast, issues := env.Compile(p.Expression)
	if issues.Err() != nil {
		var faults []string
		for _, f := range issues.Errors() {
			if len(faults) == maxFaults {
				break
			}
			faults = append(faults, fmt.Sprintf("line %d, column %d: %s", f.Location.Line(), f.Location.Column()+1, f.Message))
		}
		return nil, errs.Field("expression", "is not valid: %s", strings.Join(faults, "; "))
	}
	if !ast.OutputType().IsExactType(cel.IntType) {
		return nil, errs.Field("expression", "is not valid: line 1, column 1: it must give an int, not %s; convert it with int()", ast.OutputType())
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost))
	if err != nil {
		return nil, errs.Field("expression", "is not valid: %v", err)
	}
	step := time.Duration(0)
	for _, ref := range ast.NativeRep().ReferenceMap() {
		switch ref.Name {
		case variableMinute:
			step = time.Minute
		case variableHour, variableWeekday:
			if step == 0 {
				step = time.Hour
			}
		}
	}
	return func(m scaling.Metrics, now time.Time) (a scaling.Answer) {
		local := now.In(zone)
		if step > 0 {
			a.Until = next(local, step)
		}
		out, _, err := program.Eval(map[string]any{
			"players": m.Players, "slots": m.Slots, "free": m.Free, "instances": m.Instances, "ready": m.Ready, "min": m.Min, "max": m.Max, "tps": m.TPS,
			variableMinute: local.Minute(), variableHour: local.Hour(), variableWeekday: int(local.Weekday()),
		})
		if err != nil {
			a.Message = "the expression has no value: " + validate.Clip(err.Error())
			return a
		}
		n, ok := out.Value().(int64)
		if !ok || n < 0 {
			a.Message = "the expression has no value of 0 or more"
			return a
		}
		a.Instances, a.Given = int(min(n, validate.MaxInstances)), true
		a.Message = fmt.Sprintf("its expression gives %d with %d players on %d slots", n, m.Players, m.Slots)
		return a
	}, nil
}

// next returns when the wall clock shows the next full minute or hour.
func next(local time.Time, step time.Duration) time.Time {
	past := time.Duration(local.Second())*time.Second + time.Duration(local.Nanosecond())
	if step == time.Hour {
		past += time.Duration(local.Minute()) * time.Minute
	}
	return local.Add(step - past)
}
