// Package noticeops writes outgoing notices. Package background/notices delivers them.
package noticeops

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Deps are what Notices need besides the Committer.
type Deps struct {
	// Seal seals the targets.
	Seal seal.Box
	// Types are the event types that can be sent.
	Types []string
	// Allowed returns the allow list of addresses outside the public Internet.
	Allowed func() egress.Allowed
}

// Notices writes notices. It is safe for concurrent use.
type Notices struct {
	*txn.Committer
	deps Deps
}

// New returns the operations on notices.
func New(c *txn.Committer, d Deps) *Notices { return &Notices{Committer: c, deps: d} }

// NoticeDesired is what a client asks for.
type NoticeDesired struct {
	// Notice has the fields that a client may choose. The write sets the others.
	notice.Notice
	// URL is the whole URL, or the shortened one of the present notice, which keeps its URL.
	URL string
	// Secret is the new secret, "" for none. Nil keeps the present one.
	Secret *string
}

// NoticeWrite creates, replaces or changes a notice.
type NoticeWrite struct {
	Name string
	// Create refuses to replace a notice, Update to create one.
	Create, Update bool
	// Make returns the desired notice. old is the present one, nil when the write creates it.
	Make func(old *notice.Notice) (NoticeDesired, error)
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
}

// NoticeWritten is the result of a NoticeWrite.
type NoticeWritten struct {
	// Before is nil when the notice was created.
	Before *notice.Notice
	// After is the notice as written, or as a dry run would write it.
	After notice.Notice
}

// WriteNotice creates, replaces or changes a notice. A new one, and one that is turned on, begins with the
// events after the write. Invalid names every wrong field, MovedError when IfMatch does not match,
// AlreadyExists or NotFound when Create or Update does not hold, Exhausted when there are too many. It
// writes nothing when nothing changes.
func (o *Notices) WriteNotice(ctx context.Context, by txn.Actor, w NoticeWrite) (out NoticeWritten, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := o.replaced(s, w)
		if err != nil {
			return txn.Change{}, err
		}
		desired, err := w.Make(old)
		if err != nil {
			return txn.Change{}, err
		}
		next, moved, err := o.next(s, w.Name, old, desired)
		if err != nil {
			return txn.Change{}, err
		}
		next.By, next.At = by.User, o.Now()
		out = NoticeWritten{Before: old, After: next}
		if old != nil && !moved && old.Same(next) {
			out.After = *old
			return txn.Change{}, nil
		}
		if w.DryRun {
			return txn.Change{}, nil
		}
		c := txn.Change{Audit: txn.Entry{Action: "notice.create", Resource: "notice", ID: w.Name, Before: NoticeRecord(old), After: NoticeRecord(&next)}}
		var rev int64
		if old != nil {
			rev, c.Audit.Action = old.ModRev, "notice.update"
			if moved {
				c.Audit.Details = "the URL or the secret changed"
			}
		}
		c.Writes = []store.Write{store.Replace(keys.Notice(w.Name), next, rev)}
		if st, ok := s.NoticeStates.Get(w.Name); ok && (old == nil || !old.Enabled && next.Enabled) {
			fresh := *st
			fresh.Holder, fresh.Position, fresh.Waiting = notice.Holder{}, "", 0
			c.Writes = append(c.Writes, store.Replace(keys.NoticeState(w.Name), fresh, st.ModRev))
		}
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	if n, ok := o.Snapshot().Notices.Get(w.Name); ok {
		out.After = *n
	}
	return out, nil
}

// replaced returns the notice that a write replaces, nil if it creates one.
func (o *Notices) replaced(s *view.Snapshot, w NoticeWrite) (*notice.Notice, error) {
	old, ok := s.Notices.Get(w.Name)
	var rev int64
	if ok {
		rev = old.ModRev
	}
	switch {
	case ok && w.Create:
		return nil, errs.New(errs.AlreadyExists, "there is a notice %s already", txn.Clip(w.Name))
	case !ok && w.Update:
		return nil, errs.New(errs.NotFound, "there is no notice %s", txn.Clip(w.Name))
	}
	if err := txn.CheckRevision("notice "+txn.Clip(w.Name), w.IfMatch, rev); err != nil {
		return nil, err
	}
	if !ok && s.Notices.Len() >= notice.MaxNotices {
		return nil, errs.New(errs.Exhausted, "there are %d notices, the most there may be: delete one", notice.MaxNotices)
	}
	return old, nil
}

// next returns the record for a write. moved is true if the URL or the secret changes.
func (o *Notices) next(s *view.Snapshot, name string, old *notice.Notice, d NoticeDesired) (next notice.Notice, moved bool, err error) {
	var present notice.Target
	next = d.Notice
	next.Name, next.Rev = name, record.Rev{}
	if old != nil {
		if present, err = o.Target(old); err != nil {
			return next, false, err
		}
	}
	target := notice.Target{URL: d.URL, Secret: present.Secret}
	if old != nil && d.URL == old.Address {
		target.URL = present.URL
	}
	if d.Secret != nil {
		target.Secret = *d.Secret
	}
	problems := slices.Concat(next.Validate(o.deps.Types), target.Validate(next.Format), o.reachable(target.URL))
	for i, g := range next.Groups {
		if old != nil && slices.Contains(old.Groups, g) {
			continue
		}
		if err := txn.GroupExists(s, fmt.Sprintf("groups[%d]", i), g); err != nil {
			problems = append(problems, err)
		}
	}
	if err := txn.JoinProblems(problems); err != nil {
		return next, false, err
	}
	next.Address, next.Signed = notice.Shown(target.URL), target.Secret != ""
	if moved = old == nil || target != present; !moved {
		next.Sealed, err = o.deps.Seal.About(notice.About(name)).Renew(old.Sealed)
		return next, false, err
	}
	plain, err := json.Marshal(target)
	if err != nil {
		return next, false, errs.WrapAs(errs.Internal, "noticeops.next", err)
	}
	next.Sealed = o.deps.Seal.About(notice.About(name)).Seal(plain)
	return next, true, nil
}

// reachable returns a problem if a URL has an address instead of a name, and the address is refused. Names
// are resolved and checked when a notice is sent.
func (o *Notices) reachable(target string) []error {
	u, err := url.Parse(target)
	if err != nil {
		return nil // Validate says so
	}
	a, err := netip.ParseAddr(u.Hostname())
	if err != nil || o.deps.Allowed().Permits(u.Hostname(), a) {
		return nil
	}
	return []error{errs.Field("url", "leads to %s, which is %s: use another one, or let an administrator add it to %s", a, egress.Kind(a), egress.Setting)}
}

// Target opens the target of a notice. The error is Invalid if it was sealed with another cluster secret.
func (o *Notices) Target(n *notice.Notice) (out notice.Target, err error) {
	plain, err := o.deps.Seal.About(notice.About(n.Name)).Open(n.Sealed)
	if err != nil {
		return out, errs.Wrap("noticeops.Target", err)
	}
	return out, errs.WrapAs(errs.Internal, "noticeops.Target", json.Unmarshal(plain, &out))
}

// NoticeRecord is what the audit keeps of a notice. It has neither the whole URL nor the secret.
func NoticeRecord(n *notice.Notice) any {
	if n == nil {
		return nil
	}
	out := txn.ToMap(n)
	for _, field := range []string{"name", "by", "at", "sealed"} {
		delete(out, field)
	}
	return out
}

// DeleteNotice removes a notice. Events that wait for it are not sent. NotFound when it does not exist,
// MovedError when ifMatch is not 0 and not its revision. With dryRun it only checks.
func (o *Notices) DeleteNotice(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := FindNotice(s, name)
		if err == nil {
			err = txn.CheckRevision("notice "+name, ifMatch, old.ModRev)
		}
		if err != nil || dryRun {
			return txn.Change{}, err
		}
		c := txn.Change{
			Writes: []store.Write{store.Remove(keys.Notice(name), old.ModRev)},
			Audit:  txn.Entry{Action: "notice.delete", Resource: "notice", ID: name, Before: NoticeRecord(old)},
		}
		if st, ok := s.NoticeStates.Get(name); ok {
			c.Writes = append(c.Writes, store.Remove(keys.NoticeState(name), st.ModRev))
		} else {
			c.Guards = append(c.Guards, store.Missing(keys.NoticeState(name)))
		}
		c.DropApplied(s, applied.Notice, name)
		return c, nil
	})
	return err
}

// FindNotice returns a notice, or NotFound.
func FindNotice(s *view.Snapshot, name string) (*notice.Notice, error) {
	n, ok := s.Notices.Get(name)
	if !ok {
		return nil, errs.New(errs.NotFound, "there is no notice %s", txn.Clip(name))
	}
	return n, nil
}

// TestNotice audits a test of a notice, which send performs. NotFound when the notice does not exist.
func (o *Notices) TestNotice(ctx context.Context, by txn.Actor, name string, send func(context.Context, *notice.Notice) error) error {
	n, err := FindNotice(o.Snapshot(), name)
	if err != nil {
		return err
	}
	return o.Outside(ctx, by, txn.Entry{Action: "notice.test", Resource: "notice", ID: name}, func() error { return send(ctx, n) })
}
