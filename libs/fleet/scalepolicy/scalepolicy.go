// Package scalepolicy has the policies of a group: rules that say how many instances the group shall
// have, in addition to its load. Package autoscale evaluates them.
package scalepolicy

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Limits of policies.
const (
	// MaxPolicies bounds the policies of a group.
	MaxPolicies = 16
	// MaxDuration bounds the window of a schedule, in seconds.
	MaxDuration = 31 * 24 * 3600
	// MaxExpression bounds an expression, in bytes.
	MaxExpression = 1000
	// MaxURL bounds the URL of a webhook, in bytes.
	MaxURL = 2000
	// MaxTimeout bounds the wait for the answer of a webhook, in seconds.
	MaxTimeout = 30
	// MinInterval and MaxInterval bound the time between two calls of a webhook, in seconds.
	MinInterval = 5
	MaxInterval = 3600
	// MaxFallback bounds how long the last answer of a webhook applies, in seconds.
	MaxFallback = 24 * 3600
)

// Defaults of a webhook, in seconds.
const (
	DefaultTimeout  = 5
	DefaultInterval = 30
	DefaultFallback = 300
)

// Type is how a policy finds its number.
type Type string

// The types.
const (
	// Schedule asks for Instances during windows that begin at the times of Cron.
	Schedule Type = "schedule"
	// CEL computes the number with an expression over the figures of the group.
	CEL Type = "cel"
	// Webhook asks a server.
	Webhook Type = "webhook"
)

// Combine says how the numbers of the policies and of the load are combined.
type Combine string

// The combinations.
const (
	// Max takes the highest number. The load is one of them.
	Max Combine = "max"
	// Chain takes the number of the first policy that has one. The load counts only if none has.
	Chain Combine = "chain"
)

// Policy is one rule. Its fields other than Name and Type belong to one type each, except Timezone,
// which schedules and expressions have. Policies are comparable.
type Policy struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	// Cron is when a window begins. It lasts DurationSeconds.
	Cron            string `json:"cron,omitempty"`
	DurationSeconds int    `json:"durationSeconds,omitempty"`
	// Instances is the number during a window.
	Instances int `json:"instances,omitempty"`
	// Timezone is a name of the IANA database; "" is UTC.
	Timezone string `json:"timezone,omitempty"`
	// Expression is in the Common Expression Language. A negative result is no answer.
	Expression string `json:"expression,omitempty"`
	// URL is where the figures are sent. The server answers within TimeoutSeconds and is called every
	// IntervalSeconds. If a call fails, its last answer applies for FallbackSeconds.
	URL             string `json:"url,omitempty"`
	TimeoutSeconds  int    `json:"timeoutSeconds,omitempty"`
	IntervalSeconds int    `json:"intervalSeconds,omitempty"`
	FallbackSeconds int    `json:"fallbackSeconds,omitempty"`
}

// WithDefaults returns the policy with the defaults of a webhook in place of zeros.
func (p Policy) WithDefaults() Policy {
	if p.Type != Webhook {
		return p
	}
	for _, f := range []struct {
		value    *int
		fallback int
	}{{&p.TimeoutSeconds, DefaultTimeout}, {&p.IntervalSeconds, DefaultInterval}, {&p.FallbackSeconds, DefaultFallback}} {
		if *f.value == 0 {
			*f.value = f.fallback
		}
	}
	return p
}

// Validate returns everything that is wrong with policies and their combination, as Invalid errors
// that name the field. It does not check what package autoscale parses: cron expressions, time zones,
// expressions and URLs.
func Validate(all []Policy, combine Combine) []error {
	var p validate.Problems
	p.Check(validate.OneOf(combine, "", Max, Chain), "scalingCombine", "must be max or chain, not %q", validate.Clip(string(combine)))
	p.Check(len(all) <= MaxPolicies, "scalingPolicies", "must have at most %d entries, has %d", MaxPolicies, len(all))
	if len(p.List) > 0 {
		return p.List
	}
	seen := map[string]bool{}
	for n, one := range all {
		field := fmt.Sprintf("scalingPolicies[%d]", n)
		p.Check(validate.ValidSegment(one.Name), field+".name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period, not %q", validate.Clip(one.Name))
		p.Check(!seen[one.Name], field+".name", "%q is used twice: each policy needs a name of its own", validate.Clip(one.Name))
		seen[one.Name] = true
		one.validate(&p, field)
	}
	return p.List
}

func (o Policy) validate(p *validate.Problems, field string) {
	if !validate.OneOf(o.Type, Schedule, CEL, Webhook) {
		p.Check(false, field+".type", "must be schedule, cel or webhook, not %q", validate.Clip(string(o.Type)))
		return
	}
	only := func(name string, given bool, types ...Type) bool {
		if !given || validate.OneOf(o.Type, types...) {
			return validate.OneOf(o.Type, types...)
		}
		p.Check(false, field+"."+name, "has no meaning with the type %s: remove it", o.Type)
		return false
	}
	within := func(name string, v, least, most int) {
		p.Check(v >= least && v <= most, field+"."+name, "must be between %d and %d, is %d", least, most, v)
	}
	if only("cron", o.Cron != "", Schedule) {
		p.Check(o.Cron != "", field+".cron", "is missing: say when the windows begin, such as \"0 18 * * *\"")
	}
	if only("durationSeconds", o.DurationSeconds != 0, Schedule) {
		within("durationSeconds", o.DurationSeconds, 1, MaxDuration)
	}
	if only("instances", o.Instances != 0, Schedule) {
		within("instances", o.Instances, 1, validate.MaxInstances)
	}
	only("timezone", o.Timezone != "", Schedule, CEL)
	if only("expression", o.Expression != "", CEL) {
		p.Check(o.Expression != "" && len(o.Expression) <= MaxExpression, field+".expression", "must be an expression of 1 to %d bytes", MaxExpression)
	}
	if only("url", o.URL != "", Webhook) {
		p.Check(o.URL != "" && len(o.URL) <= MaxURL, field+".url", "must be a URL of 1 to %d bytes", MaxURL)
	}
	if only("timeoutSeconds", o.TimeoutSeconds != 0, Webhook) {
		within("timeoutSeconds", o.TimeoutSeconds, 1, MaxTimeout)
	}
	if only("intervalSeconds", o.IntervalSeconds != 0, Webhook) {
		within("intervalSeconds", o.IntervalSeconds, MinInterval, MaxInterval)
	}
	if only("fallbackSeconds", o.FallbackSeconds != 0, Webhook) {
		within("fallbackSeconds", o.FallbackSeconds, 1, MaxFallback)
	}
}
