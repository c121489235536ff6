package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// LockoutPolicy says when a user name is locked out.
type LockoutPolicy struct {
	// Failures is how many wrong passwords within Window lock a name out for Duration.
	Failures         int
	Window, Duration time.Duration
}

// maxLockouts bounds the names of which wrong passwords are counted. Past it only those
// count that are a user's, of whom there are maxUsers at most.
const maxLockouts = 20_000

// lockoutsTogether is how long wrong passwords are put on one lease.
const lockoutsTogether = time.Minute

// LockedError says that a user name is locked out.
type LockedError struct{ Until time.Time }

// Error tells the user what to do.
func (e *LockedError) Error() string {
	return "too many wrong passwords: the account is locked until " + e.Until.Format(time.RFC3339) + ", try again then"
}

// Prove looks at a password with check, and counts for a user name when it was wrong, that
// is when check is Unauthenticated. While the name is locked out nothing is looked at:
// LockedError, also when the lock came while it was. What was counted is forgotten once a
// password was right. A name that nobody has is treated alike.
//
// As many passwords more than the policy says can be tried as are looked at on all gateways
// when the lock comes; none of them lets anybody in.
func (o *Operations) Prove(ctx context.Context, by Actor, name string, check func() error) error {
	name = strings.ToLower(name)
	if err := o.locked(name); err != nil {
		return err
	}
	switch err := check(); {
	case err == nil:
		return o.forgetFailures(ctx, by, name)
	case errs.Is(err, errs.Unauthenticated):
		if failed := o.countFailure(ctx, by, name); failed != nil {
			o.cfg.Log.Warn("a wrong password was not counted", "user", shownName(o.Snapshot(), name), "error", failed)
		}
		return err
	default:
		return err
	}
}

// locked is a LockedError while a name is locked out.
func (o *Operations) locked(name string) error {
	l, ok := o.Snapshot().Lockouts.Get(hashOf(name))
	if ok && o.locks(l) {
		return &LockedError{Until: l.Until}
	}
	return nil
}

// locks reports whether a name is locked out by what is known of it.
func (o *Operations) locks(l *fleet.Lockout) bool {
	return o.now().Before(l.Until) && !o.cfg.Settings().Lockout.Off
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
func (o *Operations) countFailure(ctx context.Context, by Actor, name string) error {
	now := o.cfg.Settings().Lockout
	if now.Off {
		return nil
	}
	ctx = elsewhere(ctx) // it is not what was asked for
	p := LockoutPolicy{Failures: now.Failures, Window: now.Window, Duration: now.Duration}
	return InTime(ctx, func(ctx context.Context) error {
		return o.on(ctx, &o.lockouts, max(p.Window, p.Duration), func(lease store.Lease) error {
			_, err := o.attempt(ctx, by, func(s *view.Snapshot) (change, error) { return p.failed(s, name, lease, o.now()) })
			return err
		})
	})
}

// failed is what a wrong password changes.
func (p LockoutPolicy) failed(s *view.Snapshot, name string, lease store.Lease, now time.Time) (change, error) {
	known, _ := s.Lockouts.Get(hashOf(name))
	if known == nil {
		known = new(fleet.Lockout)
	}
	if _, is := s.Users.Get(name); !is && known.ModRev == 0 && s.Lockouts.Len() >= maxLockouts {
		return change{}, errs.New(errs.Exhausted, "wrong passwords of %d names are counted already", maxLockouts)
	}
	next, ok := p.after(*known, now)
	if !ok {
		return change{}, nil
	}
	c := change{writes: []store.Write{store.ReplaceOn(lease, store.LockoutKey(hashOf(name)), next, known.ModRev)}}
	if !next.Until.IsZero() {
		c.audit = entry{
			action: "auth.lockout", resource: "user", id: shownName(s, name),
			details: fmt.Sprintf("%d wrong passwords within %v, locked until %s", p.Failures, p.Window, next.Until.Format(time.RFC3339)),
		}
	}
	return c, nil
}

// after is what is known of a name after one more wrong password; false when the name is
// locked out, and nothing counts.
func (p LockoutPolicy) after(l fleet.Lockout, now time.Time) (fleet.Lockout, bool) {
	if now.Before(l.Until) {
		return l, false
	}
	counting := slices.DeleteFunc(slices.Clone(l.Failures), func(at time.Time) bool { return now.Sub(at) >= p.Window })
	counting = append(counting, now)
	if len(counting) >= p.Failures {
		return fleet.Lockout{Until: now.Add(p.Duration)}, true
	}
	return fleet.Lockout{Failures: counting}, true
}

// forgive ends a lockout with the password that was wrong: a user has got another one, or is
// deleted.
func (c *change) forgive(s *view.Snapshot, name string) {
	if l, ok := s.Lockouts.Get(hashOf(name)); ok {
		c.writes = append(c.writes, store.Remove(store.LockoutKey(hashOf(name)), l.ModRev))
	}
}

// forgetFailures removes what was counted for a name, after a password was right. LockedError
// when it was locked out meanwhile.
func (o *Operations) forgetFailures(ctx context.Context, by Actor, name string) error {
	hash := hashOf(name)
	if _, counted := o.Snapshot().Lockouts.Get(hash); !counted {
		return nil
	}
	_, err := o.mutate(elsewhere(ctx), by, func(s *view.Snapshot) (change, error) { // it is not what was asked for
		l, ok := s.Lockouts.Get(hash)
		switch {
		case !ok:
			return change{}, nil
		case o.locks(l):
			return change{}, &LockedError{Until: l.Until}
		}
		return change{writes: []store.Write{store.Remove(store.LockoutKey(hash), l.ModRev)}}, nil
	})
	if _, locked := errors.AsType[*LockedError](err); locked {
		return err
	}
	if err != nil { // who has the password is not kept out because etcd is away
		o.cfg.Log.Warn("wrong passwords are still counted", "user", name, "error", err)
	}
	return nil
}
