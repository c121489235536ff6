package accountops

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	maxBindings = 1000
	// maxSubjects and maxSelectorText bound a binding; the text is in bytes.
	maxSubjects     = 500
	maxSelectorText = 1024
)

// BindingWrite creates or replaces a binding.
type BindingWrite struct {
	Name, Role string
	// Selector is in the syntax of label.ParseSelector. Subjects are names of users.
	Selector string
	Subjects []string
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
	// May are the caller's permissions in the whole fleet. The role must not have others.
	May []account.Permission
}

// BindingWritten is the result of a BindingWrite.
type BindingWritten struct {
	// Before is nil when the binding was created.
	Before *account.Binding
	// After is the binding as written, or as a dry run would write it.
	After account.Binding
}

// WriteBinding creates or replaces a binding, which is in force at once. Invalid names every wrong
// field, Denied says which permission the caller lacks, MovedError when IfMatch does not match. It writes
// nothing when nothing changes.
func (o *Accounts) WriteBinding(ctx context.Context, by txn.Actor, w BindingWrite) (out BindingWritten, err error) {
	w.Role = strings.ToUpper(w.Role)
	selector, err := w.check()
	if err != nil {
		return out, err
	}
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		out = BindingWritten{}
		if old, ok := s.Bindings.Get(w.Name); ok {
			out.Before = old
		}
		next := account.Binding{Name: w.Name, Role: w.Role, Selector: selector, By: by.User, At: o.Now()}
		c := txn.Change{}
		if err := w.settle(&c, s, out.Before, &next); err != nil {
			return txn.Change{}, err
		}
		if out.After = next; out.Before != nil && out.Before.Equal(&next) {
			out.After = *out.Before
			return txn.Change{}, nil
		}
		if w.DryRun {
			return txn.Change{}, nil
		}
		c.Audit = txn.Entry{Action: "binding.create", Resource: "binding", ID: w.Name, After: BindingRecord(s, &next)}
		var rev int64
		if out.Before != nil {
			rev, c.Audit.Action, c.Audit.Before = out.Before.ModRev, "binding.update", BindingRecord(s, out.Before)
		}
		c.Writes = append(c.Writes, store.Replace(keys.Binding(w.Name), next, rev))
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	if b, ok := o.Snapshot().Bindings.Get(w.Name); ok {
		out.After = *b
	}
	return out, nil
}

// check validates what is wanted by itself and returns the selector.
func (w *BindingWrite) check() (label.Selector, error) {
	var p validate.Problems
	p.Check(validate.ValidSegment(w.Name), "name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period, not %q", validate.Clip(w.Name))
	p.Check(w.Role != "", "role", "is missing: name a role that orrery get roles lists")
	p.Check(len(w.Subjects) <= maxSubjects, "subjects", "must have at most %d entries, has %d", maxSubjects, len(w.Subjects))
	p.Check(len(w.Selector) <= maxSelectorText, "selector", "must have at most %d bytes, has %d", maxSelectorText, len(w.Selector))
	selector, err := label.ParseSelector(w.Selector)
	p.Check(err == nil, "selector", "%s", errs.MessageOf(err))
	return selector, txn.JoinProblems(p.List)
}

// settle completes a binding, and checks it against a snapshot and the binding that it replaces.
func (w *BindingWrite) settle(c *txn.Change, s *view.Snapshot, old, next *account.Binding) error {
	var rev int64
	if old != nil {
		rev = old.ModRev
	}
	if err := txn.CheckRevision("binding "+w.Name, w.IfMatch, rev); err != nil {
		return err
	}
	if old == nil && s.Bindings.Len() >= maxBindings {
		return errs.New(errs.Exhausted, "there are %d bindings, the most there may be: delete some, or add users to those there are", maxBindings)
	}
	if old != nil {
		if err := mayUnbind(s, old, w.May); err != nil {
			return err
		}
	}
	if err := giveRole(c, s, w.Role, w.May); err != nil {
		return err
	}
	if len(auth.GrantedBy(s, *next)) == 0 {
		return errs.Field("role", "%s gives nothing here: its permissions concern the whole fleet, and a binding with a selector gives those that concern groups; see /docs", w.Role)
	}
	for n, name := range w.Subjects {
		u, ok := s.Users.Get(strings.ToLower(name))
		if !ok {
			return errs.Field(fmt.Sprintf("subjects[%d]", n), "names a user that does not exist: %s", txn.Clip(name))
		}
		next.Subjects = append(next.Subjects, u.ID())
	}
	slices.Sort(next.Subjects)
	next.Subjects = slices.Compact(next.Subjects)
	return nil
}

// mayUnbind returns Denied when a binding gives a permission that the caller lacks.
func mayUnbind(s *view.Snapshot, b *account.Binding, may []account.Permission) error {
	role, _ := auth.RoleOf(s, b.Role)
	if p, ok := beyond(may, role.Permissions); ok {
		return errs.New(errs.Denied, "you cannot change the binding %s: its role has the permission %s, which you lack", b.Name, p)
	}
	return nil
}

// DeleteBinding removes a binding. NotFound when it does not exist, Denied when it gives more than the
// caller may give, MovedError when ifMatch is not 0 and not its revision. With dryRun it only checks.
func (o *Accounts) DeleteBinding(ctx context.Context, by txn.Actor, name string, may []account.Permission, ifMatch int64, dryRun bool) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		b, ok := s.Bindings.Get(name)
		if !ok {
			return txn.Change{}, NoBinding(name)
		}
		err := txn.CheckRevision("binding "+name, ifMatch, b.ModRev)
		if err == nil {
			err = mayUnbind(s, b, may)
		}
		if err != nil || dryRun {
			return txn.Change{}, err
		}
		c := txn.Change{
			Writes: []store.Write{store.Remove(keys.Binding(name), b.ModRev)},
			Audit:  txn.Entry{Action: "binding.delete", Resource: "binding", ID: name, Before: BindingRecord(s, b)},
		}
		c.DropApplied(s, applied.Binding, name)
		return c, nil
	})
	return err
}

// NoBinding is the error for a name without a binding.
func NoBinding(name string) error {
	return errs.New(errs.NotFound, "there is no binding %s", txn.Clip(name))
}

// Subjects are the names of users by User.ID.
type Subjects map[string]string

// SubjectsOf returns the names of all users.
func SubjectsOf(s *view.Snapshot) Subjects {
	out := make(Subjects, s.Users.Len())
	for name, u := range s.Users.All() {
		out[u.ID()] = name
	}
	return out
}

// Of returns the names of a binding's users, sorted. It omits users who were deleted.
func (all Subjects) Of(b *account.Binding) []string {
	out := []string{}
	for _, id := range b.Subjects {
		if name, ok := all[id]; ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// BindingRecord is what the audit keeps of a binding.
func BindingRecord(s *view.Snapshot, b *account.Binding) any {
	return map[string]any{"role": b.Role, "selector": b.Selector.String(), "subjects": SubjectsOf(s).Of(b)}
}
