package operate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/settings"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// LockoutPolicy says when wrong passwords lock a user name out.
type LockoutPolicy struct {
	// Failures is how many wrong passwords within Window lock a name out for Duration, from
	// the network they come from. So many times strangers from unknown networks together lock
	// it out for all unknown networks.
	Failures         int
	Window, Duration time.Duration
}

const (
	// strangers multiplies LockoutPolicy.Failures for all unknown networks together.
	strangers = 4
	// firstDelay is how long a password waits after one wrong password; each further one doubles
	// it, to at most maxDelay.
	firstDelay = 125 * time.Millisecond
	maxDelay   = 2 * time.Second
	// maxLockouts bounds the names of which wrong passwords are counted. Past it only those
	// count that are a user's, of whom there are maxUsers at most.
	maxLockouts = 20_000
	// lockoutsTogether is how long wrong passwords are put on one lease.
	lockoutsTogether = time.Minute
)

// LockedError says that a user name is locked out for the caller's network.
type LockedError struct{ Until time.Time }

// Error tells the user what to do.
func (e *LockedError) Error() string {
	return "too many wrong passwords: the account is locked for your network until " + e.Until.Format(time.RFC3339) + "; try again then"
}

// origin is where a password comes from.
type origin struct {
	network string
	// known is true when the user of that name signed in from there lately.
	known bool
}

// originOf is where an address stands for a user name.
func originOf(s *view.Snapshot, name, address string) origin {
	from := origin{network: fleet.NetworkOf(address)}
	if u, ok := s.Users.Get(name); ok {
		if known, ok := s.KnownNetworks.Get(u.ID()); ok {
			_, from.known = known.Networks[from.network]
		}
	}
	return from
}

// Prove looks at a password with check, and counts for a user name when it was wrong, that
// is when check is Unauthenticated. While the name is locked out for the caller's network,
// nothing is looked at: LockedError, also when the lock came while it was. After wrong
// passwords the next one waits before it is looked at, longer after each. A right password
// forgets what was counted for its network. A name that nobody has is treated alike.
//
// As many passwords more than the policy says can be tried as are looked at on all gateways
// when the lock comes; none of them lets anybody in.
func (o *Operations) Prove(ctx context.Context, by Actor, name string, check func() error) error {
	name = strings.ToLower(name)
	if err := o.locked(name, by.IP); err != nil {
		return err
	}
	if err := o.delay(ctx, name, by.IP); err != nil {
		return err
	}
	switch err := check(); {
	case err == nil:
		return o.forgetFailures(ctx, by, name)
	case errs.Is(err, errs.Unauthenticated):
		failed := o.countFailure(ctx, by, name)
		if locked, is := errors.AsType[*LockedError](failed); is {
			return locked // as for a right one, or the answer would tell them apart
		}
		if failed != nil {
			o.cfg.Log.Warn("a wrong password was not counted", "user", shownName(o.Snapshot(), name), "error", failed)
		}
		return err
	default:
		return err
	}
}

func policyOf(l settings.Lockout) LockoutPolicy {
	return LockoutPolicy{Failures: l.Failures, Window: l.Window, Duration: l.Duration}
}

// locked is a LockedError while a name is locked out for an address.
func (o *Operations) locked(name, address string) error {
	s, now := o.Snapshot(), o.cfg.Settings().Lockout
	l, ok := s.Lockouts.Get(hashOf(name))
	if !ok || now.Off {
		return nil
	}
	if until := lockedUntil(l, originOf(s, name, address)); o.now().Before(until) {
		return &LockedError{Until: until}
	}
	return nil
}

// delay waits as long as a password has to, and looks again whether it is locked out then.
func (o *Operations) delay(ctx context.Context, name, address string) error {
	s, now := o.Snapshot(), o.cfg.Settings().Lockout
	l, ok := s.Lockouts.Get(hashOf(name))
	if !ok || now.Off {
		return nil
	}
	if !o.cfg.Pause(ctx, policyOf(now).delay(l, originOf(s, name, address), o.now())) {
		return errs.Wrap("operate.delay", ctx.Err())
	}
	return o.locked(name, address)
}

// hashOf is what a text is kept as that must not be read.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// shownName is a user's name as it may be kept: what is nobody's name may be a password.
func shownName(s *view.Snapshot, name string) string {
	if _, ok := s.Users.Get(name); ok {
		return name
	}
	return "unknown-" + hashOf(name)[:12]
}

// countFailure notes a wrong password, and locks the name out when it was one too many.
// LockedError when the name was locked out meanwhile.
func (o *Operations) countFailure(ctx context.Context, by Actor, name string) error {
	now := o.cfg.Settings().Lockout
	if now.Off {
		return o.auditRefusal(ctx, by, name)
	}
	ctx = elsewhere(ctx) // it is not what was asked for
	p, said := policyOf(now), o.refused(o.Snapshot(), name, by.IP)
	return InTime(ctx, func(ctx context.Context) error {
		return o.on(ctx, &o.lockouts, max(p.Window, p.Duration), func(lease store.Lease) error {
			_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) {
				c, err := p.failed(s, name, by.IP, lease, o.now())
				if len(c.writes) > 0 && c.audit.action == "" {
					c.audit = said
				}
				return c, err
			})
			return err
		})
	})
}

// failed is what a wrong password changes. LockedError when the name is locked out for the
// address, and nothing counts.
func (p LockoutPolicy) failed(s *view.Snapshot, name, address string, lease store.Lease, now time.Time) (change, error) {
	known, _ := s.Lockouts.Get(hashOf(name))
	if known == nil {
		known = new(fleet.Lockout)
	}
	if _, is := s.Users.Get(name); !is && known.ModRev == 0 && s.Lockouts.Len() >= maxLockouts {
		return change{}, errs.New(errs.Exhausted, "wrong passwords of %d names are counted already", maxLockouts)
	}
	from := originOf(s, name, address)
	next, ok := p.after(*known, from, now)
	if !ok {
		return change{}, &LockedError{Until: lockedUntil(known, from)}
	}
	c := change{writes: []store.Write{store.ReplaceOn(lease, store.LockoutKey(hashOf(name)), next, known.ModRev)}}
	if until := lockedUntil(&next, from); now.Before(until) {
		why := fmt.Sprintf("%d wrong passwords within %v from %s: that network", p.Failures, p.Window, from.network)
		if !now.Before(next.Networks[from.network].Until) {
			why = fmt.Sprintf("%d wrong passwords within %v from unknown networks: all of them", p.Failures*strangers, p.Window)
		}
		c.audit = entry{
			action: fleet.ActionLockout, resource: "user", id: shownName(s, name), details: why + " locked out until " + until.Format(time.RFC3339),
		}
	}
	return c, nil
}

// lockedUntil is when passwords from an origin are looked at again; not in the future when
// they are looked at now.
func lockedUntil(l *fleet.Lockout, from origin) time.Time {
	until := l.Networks[from.network].Until
	if !from.known && l.Until.After(until) {
		return l.Until
	}
	return until
}

// delay is how long a password from an origin waits before it is looked at.
func (p LockoutPolicy) delay(l *fleet.Lockout, from origin, now time.Time) time.Duration {
	wrong := len(p.trimmed(l.Networks[from.network], now).Failures)
	if !from.known {
		wrong = max(wrong, len(p.trimmed(l.LockoutCount, now).Failures))
	}
	const doublings = 10 // past maxDelay, and no overflow
	if wrong == 0 {
		return 0
	}
	return min(firstDelay<<min(wrong-1, doublings), maxDelay)
}

// after is what is known of a name after one more wrong password; false when the origin is
// locked out, and nothing counts.
func (p LockoutPolicy) after(l fleet.Lockout, from origin, now time.Time) (fleet.Lockout, bool) {
	if now.Before(lockedUntil(&l, from)) {
		return l, false
	}
	next := fleet.Lockout{LockoutCount: p.trimmed(l.LockoutCount, now), Networks: p.networks(l, now)}
	next.Networks[from.network] = p.counted(next.Networks[from.network], p.Failures, now)
	if !from.known {
		next.LockoutCount = p.counted(next.LockoutCount, p.Failures*strangers, now)
	}
	for len(next.Networks) > fleet.MaxLockoutNetworks {
		delete(next.Networks, p.soonest(next.Networks, from.network))
	}
	return next, true
}

// networks are the counts of networks in which something still counts.
func (p LockoutPolicy) networks(l fleet.Lockout, now time.Time) map[string]fleet.LockoutCount {
	out := map[string]fleet.LockoutCount{}
	for network, c := range l.Networks {
		if c = p.trimmed(c, now); len(c.Failures) > 0 || !c.Until.IsZero() {
			out[network] = c
		}
	}
	return out
}

// trimmed is a count without what counts no more.
func (p LockoutPolicy) trimmed(c fleet.LockoutCount, now time.Time) fleet.LockoutCount {
	if !now.Before(c.Until) {
		c.Until = time.Time{}
	}
	c.Failures = slices.DeleteFunc(slices.Clone(c.Failures), func(at time.Time) bool { return now.Sub(at) >= p.Window })
	return c
}

// counted is a count with one more wrong password, which locks when it makes as many as most.
func (p LockoutPolicy) counted(c fleet.LockoutCount, most int, now time.Time) fleet.LockoutCount {
	if c.Failures = append(c.Failures, now); len(c.Failures) >= most {
		return fleet.LockoutCount{Until: now.Add(p.Duration)}
	}
	return c
}

// soonest is the network whose count is forgotten first, of all but one.
func (p LockoutPolicy) soonest(networks map[string]fleet.LockoutCount, but string) (first string) {
	forgotten := func(network string) time.Time {
		c := networks[network]
		if n := len(c.Failures); n > 0 {
			return c.Failures[n-1].Add(p.Window)
		}
		return c.Until
	}
	for network := range networks {
		if network == but {
			continue
		}
		if first == "" || cmp.Or(forgotten(network).Compare(forgotten(first)), cmp.Compare(network, first)) < 0 {
			first = network
		}
	}
	return first
}

// forgiven is what is known of a name after a right password from a network: wrong ones from
// there count no more. false when nothing is left.
func (p LockoutPolicy) forgiven(l fleet.Lockout, network string, now time.Time) (next fleet.Lockout, left bool) {
	next = fleet.Lockout{LockoutCount: p.trimmed(l.LockoutCount, now), Networks: p.networks(l, now)}
	own := next.Networks[network].Failures
	next.Failures = slices.DeleteFunc(next.Failures, func(at time.Time) bool {
		return slices.ContainsFunc(own, at.Equal)
	})
	delete(next.Networks, network)
	return next, len(next.Networks) > 0 || len(next.Failures) > 0 || !next.Until.IsZero()
}

// forgive ends a lockout with the password that was wrong: a user has got another one, or is
// deleted.
func (c *change) forgive(s *view.Snapshot, name string) {
	if l, ok := s.Lockouts.Get(hashOf(name)); ok {
		c.writes = append(c.writes, store.Remove(store.LockoutKey(hashOf(name)), l.ModRev))
	}
}

// forgetFailures removes what was counted for a name and the caller's network, after a password
// was right. LockedError when it was locked out meanwhile.
func (o *Operations) forgetFailures(ctx context.Context, by Actor, name string) error {
	hash := hashOf(name)
	if _, counted := o.Snapshot().Lockouts.Get(hash); !counted {
		return nil
	}
	p := policyOf(o.cfg.Settings().Lockout)
	err := InTime(elsewhere(ctx), func(ctx context.Context) error { // it is not what was asked for
		return o.on(ctx, &o.lockouts, max(p.Window, p.Duration), func(lease store.Lease) error {
			_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) {
				if err := o.locked(name, by.IP); err != nil {
					return change{}, err
				}
				l, ok := s.Lockouts.Get(hash)
				if !ok {
					return change{}, nil
				}
				if _, own := l.Networks[fleet.NetworkOf(by.IP)]; !own {
					return change{}, nil
				}
				next, left := p.forgiven(*l, fleet.NetworkOf(by.IP), o.now())
				if !left {
					return change{writes: []store.Write{store.Remove(store.LockoutKey(hash), l.ModRev)}}, nil
				}
				return change{writes: []store.Write{store.ReplaceOn(lease, store.LockoutKey(hash), next, l.ModRev)}}, nil
			})
			return err
		})
	})
	if _, locked := errors.AsType[*LockedError](err); locked {
		return err
	}
	if err != nil { // who has the password is not kept out because etcd is away
		o.cfg.Log.Warn("wrong passwords are still counted", "user", name, "error", err)
	}
	return nil
}
