package accountops

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

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// LockoutPolicy says when wrong passwords lock a user name out.
type LockoutPolicy struct {
	// Failures is how many wrong passwords from one network within Window lock the name for that
	// network for Duration. Unknown networks are also counted together: after strangers times as many
	// failures, the name is locked for all unknown networks.
	Failures         int
	Window, Duration time.Duration
}

const (
	// strangers is the factor by which all unknown networks together may exceed Failures.
	strangers = 4
	// firstDelay delays the check after one wrong password. Each further one doubles it, up to
	// maxDelay.
	firstDelay = 125 * time.Millisecond
	maxDelay   = 2 * time.Second
	// maxLockouts limits the names with counted wrong passwords. Beyond it, only names of existing
	// users are counted; maxUsers limits those.
	maxLockouts = 20_000
	// lockoutsTogether is how long records of wrong passwords share one lease.
	lockoutsTogether = time.Minute
)

// LockedError says that a user name is locked out for the caller's network.
type LockedError struct{ Until time.Time }

// Error tells the user what to do.
func (e *LockedError) Error() string {
	return "too many wrong passwords or codes: the account is locked for your network until " + e.Until.Format(time.RFC3339) + "; try again then"
}

// origin is where a password comes from.
type origin struct {
	network string
	// known is true if the user signed in from the network recently.
	known bool
}

// originOf returns the network of an address, and whether the user is known from there.
func originOf(s *view.Snapshot, name, address string) origin {
	from := origin{network: account.NetworkOf(address)}
	if u, ok := s.Users.Get(name); ok {
		if known, ok := s.KnownNetworks.Get(u.ID()); ok {
			_, from.known = known.Networks[from.network]
		}
	}
	return from
}

// Prove checks a password and code with check, which returns Unauthenticated if one is wrong. It
// counts wrong passwords and codes for the user name and the caller's network. A right password
// without a code that is needed (ErrCodeMissing) changes no count. While the name is locked out for that
// network, it returns a LockedError without calling check; it also does so when the lock came
// during check. After wrong passwords, it delays the next check, longer each time. A right password
// resets the count of its network. Names without a user are treated in the same way. Checks that
// run on several gateways when the lock comes may exceed the policy's limit; none of them lets the
// caller in.
func (o *Accounts) Prove(ctx context.Context, by txn.Actor, name string, check func() error) error {
	return o.prove(ctx, by, name, check, func(string) bool { return true })
}

// ProvePassword is Prove for the password alone. A right password does not end the count of wrong codes,
// so that a thief who knows it cannot guess codes without end.
func (o *Accounts) ProvePassword(ctx context.Context, by txn.Actor, name string, check func() error) error {
	return o.prove(ctx, by, name, check, func(name string) bool { return !needsCode(o.Snapshot(), name) })
}

// needsCode reports whether the logins of a user need a code.
func needsCode(s *view.Snapshot, name string) bool {
	u, ok := s.Users.Get(name)
	if !ok {
		return false
	}
	f, ok := s.Factors.Get(u.ID())
	return ok && f.Confirmed()
}

func (o *Accounts) prove(ctx context.Context, by txn.Actor, name string, check func() error, forgets func(name string) bool) error {
	name = strings.ToLower(name)
	if err := o.locked(name, by.IP); err != nil {
		return err
	}
	if err := o.delay(ctx, name, by.IP); err != nil {
		return err
	}
	switch err := check(); {
	case err == nil && !forgets(name):
		return nil
	case err == nil:
		return o.forgetFailures(ctx, by, name)
	case errors.Is(err, ErrCodeMissing):
		if locked := o.locked(name, by.IP); locked != nil {
			return locked
		}
		return err
	case errs.Is(err, errs.Unauthenticated):
		failed := o.countFailure(ctx, by, name, refusalOf(err))
		if locked, is := errors.AsType[*LockedError](failed); is {
			return locked // same answer for right and wrong passwords while locked
		}
		if failed != nil {
			o.Log.Warn("a wrong password was not counted", "user", shownName(o.Snapshot(), name), "error", failed)
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
func (o *Accounts) locked(name, address string) error {
	s, now := o.Snapshot(), o.deps.Settings().Lockout
	l, ok := s.Lockouts.Get(hashOf(name))
	if !ok || now.Off {
		return nil
	}
	if until := lockedUntil(l, originOf(s, name, address)); o.Now().Before(until) {
		return &LockedError{Until: until}
	}
	return nil
}

// delay waits as long as the next password of this name and address must wait, and then checks the
// lock again.
func (o *Accounts) delay(ctx context.Context, name, address string) error {
	s, now := o.Snapshot(), o.deps.Settings().Lockout
	l, ok := s.Lockouts.Get(hashOf(name))
	if !ok || now.Off {
		return nil
	}
	if !o.deps.Pause(ctx, policyOf(now).delay(l, originOf(s, name, address), o.Now())) {
		return errs.Wrap("operate.delay", ctx.Err())
	}
	return o.locked(name, address)
}

// hashOf returns the hash under which a secret text is stored.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// shownName returns a user name for logs and the audit. It hides a name without a user, because
// that may be a password.
func shownName(s *view.Snapshot, name string) string {
	if _, ok := s.Users.Get(name); ok {
		return name
	}
	return "unknown-" + hashOf(name)[:12]
}

// refusal is why a login was refused. The audit lists one of a kind from time to time.
type refusal struct{ kind, failure string }

// refusalOf returns what was wrong with a password and code.
func refusalOf(err error) refusal {
	if errors.Is(err, ErrCodeWrong) {
		return refusal{"code", "a wrong code of the second factor"}
	}
	return refusal{"password", "a wrong password"}
}

// countFailure counts a wrong password or code, and locks the name out when the limit is reached.
// LockedError when the name was locked out meanwhile.
func (o *Accounts) countFailure(ctx context.Context, by txn.Actor, name string, why refusal) error {
	now := o.deps.Settings().Lockout
	if now.Off {
		return o.auditRefusal(ctx, by, name, why)
	}
	ctx = txn.WithoutOnce(ctx) // not part of the caller's request
	p, said := policyOf(now), o.refusalEntry(o.Snapshot(), name, by.IP, why)
	return o.MutateOnLease(ctx, by, &o.lockouts, max(p.Window, p.Duration), func(s *view.Snapshot, lease store.Lease) (txn.Change, error) {
		c, err := p.failed(s, name, by.IP, lease, o.Now())
		if len(c.Writes) > 0 && c.Audit.Action == "" {
			c.Audit = said
		}
		return c, err
	})
}

// failed returns the change that counts a wrong password. LockedError when the name is locked out
// for the address: then nothing counts.
func (p LockoutPolicy) failed(s *view.Snapshot, name, address string, lease store.Lease, now time.Time) (txn.Change, error) {
	known, _ := s.Lockouts.Get(hashOf(name))
	if known == nil {
		known = new(account.Lockout)
	}
	if _, is := s.Users.Get(name); !is && known.ModRev == 0 && s.Lockouts.Len() >= maxLockouts {
		return txn.Change{}, errs.New(errs.Exhausted, "wrong passwords of %d names are counted already", maxLockouts)
	}
	from := originOf(s, name, address)
	next, ok := p.after(*known, from, now)
	if !ok {
		return txn.Change{}, &LockedError{Until: lockedUntil(known, from)}
	}
	c := txn.Change{Writes: []store.Write{store.ReplaceOn(lease, keys.Lockout(hashOf(name)), next, known.ModRev)}}
	if until := lockedUntil(&next, from); now.Before(until) {
		why := fmt.Sprintf("%d wrong passwords within %v from %s: that network", p.Failures, p.Window, from.network)
		if !now.Before(next.Networks[from.network].Until) {
			why = fmt.Sprintf("%d wrong passwords within %v from unknown networks: all of them", p.Failures*strangers, p.Window)
		}
		c.Audit = txn.Entry{
			Action: account.ActionLockout, Resource: "user", ID: shownName(s, name), Details: why + " locked out until " + until.Format(time.RFC3339),
		}
	}
	return c, nil
}

// lockedUntil returns when the lockout of an origin ends. A time in the past means that it is not
// locked out.
func lockedUntil(l *account.Lockout, from origin) time.Time {
	until := l.Networks[from.network].Until
	if !from.known && l.Until.After(until) {
		return l.Until
	}
	return until
}

// delay is how long a password from an origin waits before it is looked at.
func (p LockoutPolicy) delay(l *account.Lockout, from origin, now time.Time) time.Duration {
	wrong := len(p.trimmed(l.Networks[from.network], now).Failures)
	if !from.known {
		wrong = max(wrong, len(p.trimmed(l.LockoutCount, now).Failures))
	}
	const doublings = 10 // reaches maxDelay without overflow
	if wrong == 0 {
		return 0
	}
	return min(firstDelay<<min(wrong-1, doublings), maxDelay)
}

// after counts one more wrong password. It reports false when the origin is locked out: then
// nothing counts.
func (p LockoutPolicy) after(l account.Lockout, from origin, now time.Time) (account.Lockout, bool) {
	if now.Before(lockedUntil(&l, from)) {
		return l, false
	}
	next := account.Lockout{LockoutCount: p.trimmed(l.LockoutCount, now), Networks: p.networks(l, now)}
	next.Networks[from.network] = p.counted(next.Networks[from.network], p.Failures, now)
	if !from.known {
		next.LockoutCount = p.counted(next.LockoutCount, p.Failures*strangers, now)
	}
	for len(next.Networks) > account.MaxLockoutNetworks {
		delete(next.Networks, p.soonest(next.Networks, from.network))
	}
	return next, true
}

// networks returns the networks in which some wrong password still counts.
func (p LockoutPolicy) networks(l account.Lockout, now time.Time) map[string]account.LockoutCount {
	out := map[string]account.LockoutCount{}
	for network, c := range l.Networks {
		if c = p.trimmed(c, now); len(c.Failures) > 0 || !c.Until.IsZero() {
			out[network] = c
		}
	}
	return out
}

// trimmed returns a count without the wrong passwords that are older than the window.
func (p LockoutPolicy) trimmed(c account.LockoutCount, now time.Time) account.LockoutCount {
	if !now.Before(c.Until) {
		c.Until = time.Time{}
	}
	c.Failures = slices.DeleteFunc(slices.Clone(c.Failures), func(at time.Time) bool { return now.Sub(at) >= p.Window })
	return c
}

// counted adds a wrong password to a count, and locks it when there are most of them.
func (p LockoutPolicy) counted(c account.LockoutCount, most int, now time.Time) account.LockoutCount {
	if c.Failures = append(c.Failures, now); len(c.Failures) >= most {
		return account.LockoutCount{Until: now.Add(p.Duration)}
	}
	return c
}

// soonest returns the network whose count expires first, except but.
func (p LockoutPolicy) soonest(networks map[string]account.LockoutCount, but string) (first string) {
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

// forgiven returns the lockout without the count of a network, after a right password from there.
// left is false when no count remains.
func (p LockoutPolicy) forgiven(l account.Lockout, network string, now time.Time) (next account.Lockout, left bool) {
	next = account.Lockout{LockoutCount: p.trimmed(l.LockoutCount, now), Networks: p.networks(l, now)}
	own := next.Networks[network].Failures
	next.Failures = slices.DeleteFunc(next.Failures, func(at time.Time) bool {
		return slices.ContainsFunc(own, at.Equal)
	})
	delete(next.Networks, network)
	return next, len(next.Networks) > 0 || len(next.Failures) > 0 || !next.Until.IsZero()
}

// forgive removes the lockout of a name, because its user gets another password or is deleted.
func forgive(c *txn.Change, s *view.Snapshot, name string) {
	if l, ok := s.Lockouts.Get(hashOf(name)); ok {
		c.Writes = append(c.Writes, store.Remove(keys.Lockout(hashOf(name)), l.ModRev))
	}
}

// forgetFailures removes the count of a name and the caller's network after a right password.
// LockedError when the name was locked out meanwhile.
func (o *Accounts) forgetFailures(ctx context.Context, by txn.Actor, name string) error {
	hash := hashOf(name)
	if _, counted := o.Snapshot().Lockouts.Get(hash); !counted {
		return nil
	}
	p := policyOf(o.deps.Settings().Lockout)
	ctx = txn.WithoutOnce(ctx) // not part of the caller's request
	err := o.MutateOnLease(ctx, by, &o.lockouts, max(p.Window, p.Duration), func(s *view.Snapshot, lease store.Lease) (txn.Change, error) {
		if err := o.locked(name, by.IP); err != nil {
			return txn.Change{}, err
		}
		l, ok := s.Lockouts.Get(hash)
		if !ok {
			return txn.Change{}, nil
		}
		if _, own := l.Networks[account.NetworkOf(by.IP)]; !own {
			return txn.Change{}, nil
		}
		next, left := p.forgiven(*l, account.NetworkOf(by.IP), o.Now())
		if !left {
			return txn.Change{Writes: []store.Write{store.Remove(keys.Lockout(hash), l.ModRev)}}, nil
		}
		return txn.Change{Writes: []store.Write{store.ReplaceOn(lease, keys.Lockout(hash), next, l.ModRev)}}, nil
	})
	if _, locked := errors.AsType[*LockedError](err); locked {
		return err
	}
	if err != nil { // a correct password is accepted even if etcd is unavailable
		o.Log.Warn("wrong passwords are still counted", "user", name, "error", err)
	}
	return nil
}
