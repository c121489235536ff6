// Package autoscale evaluates the scaling policies of groups: it parses schedules and expressions, and
// checks the URLs of webhooks. A parsed policy is a pure function of the figures of a group and the time.
package autoscale

import (
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/orreryhq/orrery/libs/cron"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

// Check returns what is wrong with a policy that scalepolicy.Validate accepts, as an Invalid error that
// names the field within the policy.
func Check(p scalepolicy.Policy, allowed egress.Allowed) error {
	var err error
	switch p.Type {
	case scalepolicy.Schedule:
		_, err = cron.Parse(p.Cron, p.Timezone)
	case scalepolicy.CEL:
		_, err = expression(p)
	case scalepolicy.Webhook:
		err = checkURL(p.URL, allowed)
	}
	return err
}

// Parse returns a schedule or an expression as a rule. Webhooks have no rule, because their answer is
// an input. It returns the errors of Check.
func Parse(p scalepolicy.Policy) (r scaling.Rule, err error) {
	r.Name = p.Name
	switch p.Type {
	case scalepolicy.Schedule:
		r.Ask, err = windows(p)
	case scalepolicy.CEL:
		r.Ask, err = expression(p)
	case scalepolicy.Webhook:
		r.Ask = func(scaling.Metrics, time.Time) scaling.Answer { return scaling.Answer{} }
	default:
		err = errs.Field("type", "is not known: %q", string(p.Type))
	}
	return r, err
}

// windows returns the rule of a schedule.
func windows(p scalepolicy.Policy) (func(scaling.Metrics, time.Time) scaling.Answer, error) {
	times, err := cron.Parse(p.Cron, p.Timezone)
	if err != nil {
		return nil, err
	}
	zone, err := cron.Zone(p.Timezone)
	if err != nil {
		return nil, err
	}
	length := time.Duration(p.DurationSeconds) * time.Second
	return func(_ scaling.Metrics, now time.Time) scaling.Answer {
		if from, ok := times.Latest(now.Add(-length), now); ok {
			until := from.Add(length)
			return scaling.Answer{
				Instances: p.Instances, Given: true, Until: until,
				Message: fmt.Sprintf("its window is open until %s", until.In(zone).Format("15:04 MST on 2 January")),
			}
		}
		next, _ := times.Next(now)
		return scaling.Answer{Until: next}
	}, nil
}

// checkURL refuses URLs that are not of a server, and addresses that package egress will not connect to.
// The address of a name is checked with each connection.
func checkURL(text string, allowed egress.Allowed) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return errs.Field("url", "must be an http or https URL with a host, such as https://scaler.example.org/lobby")
	case u.User != nil:
		return errs.Field("url", "must not contain a user name or password, because everyone who can read the group would see it")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !allowed.Permits(u.Hostname(), a) {
		return errs.Field("url", "%s is %s, which is blocked by default: an administrator can add it to %s", a, egress.Kind(a), egress.Setting)
	}
	if u.Hostname() == "localhost" && !allowed.Permits("localhost", netip.AddrFrom4([4]byte{127, 0, 0, 1})) {
		return errs.Field("url", "localhost is a loopback address, which is blocked by default: an administrator can add it to %s", egress.Setting)
	}
	return nil
}
