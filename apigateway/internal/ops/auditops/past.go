package auditops

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/catalogops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/noticeops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ObjectKind is a kind of object with a history, as the audit names it.
type ObjectKind string

// The kinds.
const (
	GroupObject    ObjectKind = "group"
	InstanceObject ObjectKind = "instance"
	NodeObject     ObjectKind = "node"
	QuotaObject    ObjectKind = "quota"
	UserObject     ObjectKind = "user"
	RoleObject     ObjectKind = "role"
	BindingObject  ObjectKind = "binding"
	CatalogObject  ObjectKind = "catalog"
	SecretObject   ObjectKind = "secret"
	SourceObject   ObjectKind = "template-source"
	ScheduleObject ObjectKind = "schedule"
	OverlayObject  ObjectKind = "overlay"
	NoticeObject   ObjectKind = "notice"
)

// Past is an object at an earlier time.
type Past struct {
	// Fields are the audited fields.
	Fields map[string]any
	// Since is the change that produced this state; nil if it is older than the audit.
	Since *account.AuditSlip
}

// Moment is a revision, or a time if Revision is 0.
type Moment struct {
	Revision int64
	Time     time.Time
}

// isBefore reports whether an entry is later than the moment.
func (m Moment) isBefore(e *account.AuditSlip) bool {
	if m.Revision != 0 {
		return e.ModRev > m.Revision
	}
	return e.CreatedAt.After(m.Time)
}

// History returns at most n changes of an object, newest first, starting at index from, and the
// number of all. NotFound when the object does not exist and has no history.
func (o *Trail) History(ctx context.Context, kind ObjectKind, name string, from, n int) (out []account.AuditEntry, total int, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		s, err := o.Current(ctx)
		if err != nil {
			return err
		}
		name = known(s, kind, name)
		slips := becoming(s, kind, name)
		if total = len(slips); total == 0 {
			present, err := o.present(ctx, s, kind, name)
			if err == nil && present == nil {
				err = errs.New(errs.NotFound, "there is no %s %s, and the audit has no changes of one", kind, txn.Clip(name))
			}
			return err
		}
		from = min(from, total)
		out, err = o.entries(ctx, slips[from:min(from+n, total)])
		return err
	})
	return out, total, errs.Wrap("operate.History", err)
}

// Past returns an object at a moment with the fields that all its readers may see. It returns NotFound
// if the object did not exist then or the audit does not go back that far.
func (o *Trail) Past(ctx context.Context, kind ObjectKind, name string, at Moment) (out Past, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		s, err := o.Current(ctx)
		if err != nil {
			return err
		}
		name = known(s, kind, name)
		if out.Fields, err = o.present(ctx, s, kind, name); err != nil {
			return err
		}
		if s, err = o.Current(ctx); err != nil { // at least as new as what was read, so that no change is undone twice
			return err
		}
		if err := recorded(s, at); err != nil {
			return err
		}
		later := becoming(s, kind, name)
		if n := slices.IndexFunc(later, func(e *account.AuditSlip) bool { return !at.isBefore(e) }); n >= 0 {
			later, out.Since = later[:n], later[n]
		}
		for some := range slices.Chunk(later, entriesAtOnce) {
			entries, err := o.entries(ctx, some)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if out.Fields, err = undone(kind, out.Fields, e); err != nil {
					return err
				}
			}
		}
		if out.Fields == nil {
			return errs.New(errs.NotFound, "there was no %s %s then", kind, txn.Clip(name))
		}
		return nil
	})
	return out, errs.Wrap("operate.Past", err)
}

// becoming returns the changes of an object, newest first. It orders them by revision because
// clocks of gateways differ.
func becoming(s *view.Snapshot, kind ObjectKind, name string) []*account.AuditSlip {
	all := slices.Collect(s.History(string(kind), name))
	slices.SortFunc(all, func(a, b *account.AuditSlip) int { return cmp.Compare(b.ModRev, a.ModRev) })
	return all
}

// recorded returns NotFound for a moment before the first entry of the audit.
func recorded(s *view.Snapshot, at Moment) error {
	var oldest *account.AuditSlip // entries of other classes change no object and may be older
	for _, e := range s.Audit.All() {
		if e.Class() == account.AuditChange {
			oldest = e
			break
		}
	}
	switch {
	case oldest == nil:
		return errs.New(errs.NotFound, "the audit has no changes yet")
	case at.isBefore(oldest):
		return errs.New(errs.NotFound, "the audit begins at %s, revision %d: ask for a later moment", oldest.CreatedAt.Format(time.RFC3339), oldest.ModRev)
	}
	return nil
}

// known returns a name as the audit spells it: the id of an instance, and the stored case of roles,
// platforms and users.
func known(s *view.Snapshot, kind ObjectKind, name string) string {
	switch kind {
	case InstanceObject:
		if i, ok := s.Find(name); ok {
			return string(i.Intent.ID)
		}
	case RoleObject, CatalogObject:
		return strings.ToUpper(name)
	case UserObject:
		return strings.ToLower(name)
	case GroupObject, NodeObject, QuotaObject, BindingObject, SecretObject, SourceObject, ScheduleObject, OverlayObject, NoticeObject:
	}
	return name
}

// present returns what the audit would keep of an object now, nil when it does not exist.
func (o *Trail) present(ctx context.Context, s *view.Snapshot, kind ObjectKind, name string) (map[string]any, error) {
	switch kind {
	case SecretObject:
		one, err := txn.GetOptional(ctx, o.Store, keys.Secret(name))
		return txn.ToMapOrNil(clusterops.SecretRecord(one)), err
	case SourceObject:
		one, err := txn.GetOptional(ctx, o.Store, keys.TemplateSource(name))
		return sourceops.SourceRecord(one), err
	default:
		return txn.ToMapOrNil(viewed(s, kind, name)), nil
	}
}

// viewed is present for kinds that are in the view.
func viewed(s *view.Snapshot, kind ObjectKind, name string) any {
	switch kind {
	case GroupObject:
		if g, ok := s.Groups.Get(fleet.GroupName(name)); ok && !g.Deleting {
			_, record := groupops.GroupRecords(s, nil, g)
			return record
		}
	case InstanceObject:
		if i, ok := s.Instances.Get(fleet.InstanceID(name)); ok {
			return instanceops.InstanceRecord(i.Intent)
		}
	case NodeObject:
		if d, ok := s.NodesDesired.Get(fleet.NodeID(name)); ok {
			return nodeops.NodeRecord(*d)
		}
		if _, ok := s.Nodes.Get(fleet.NodeID(name)); ok {
			return nodeops.NodeRecord(fleet.NodeDesired{})
		}
	case QuotaObject:
		if q, ok := s.Quotas.Get(name); ok {
			return clusterops.QuotaRecord(q)
		}
	case UserObject:
		if u, ok := s.Users.Get(name); ok {
			return accountops.ShowUser(*u)
		}
	case RoleObject:
		if r, ok := auth.RoleOf(s, name); ok {
			return accountops.RolePermissions(r)
		}
	case BindingObject:
		if b, ok := s.Bindings.Get(name); ok {
			return accountops.BindingRecord(s, b)
		}
	case CatalogObject:
		if p, ok := s.Catalog.Get(name); ok {
			return catalogops.CatalogRecord(*p)
		}
	case ScheduleObject:
		if sched, ok := s.Schedules.Get(name); ok {
			return scheduleops.ScheduleRecord(sched)
		}
	case OverlayObject:
		if o, ok := s.Overlays.Get(name); ok {
			return scheduleops.OverlayRecord(o)
		}
	case NoticeObject:
		if n, ok := s.Notices.Get(name); ok {
			return noticeops.NoticeRecord(n)
		}
	case SecretObject, SourceObject: // not in the view
	}
	return nil
}

// undone returns an object as it was before a change.
func undone(kind ObjectKind, now map[string]any, e account.AuditEntry) (map[string]any, error) {
	switch {
	case e.ResourceType != string(kind):
		return nil, nil // created along with another object
	case e.Before == nil && e.After == nil:
		return now, nil // the object itself did not change
	case e.Before == nil:
		return nil, nil
	}
	before, after := txn.ToMap(e.Before), txn.ToMap(e.After)
	if before[txn.Truncated] == true || after[txn.Truncated] == true {
		return nil, errs.New(errs.NotFound, "the earlier state is unknown: the change at %s, %s by %s, was too large for the audit", e.CreatedAt.Format(time.RFC3339), e.Action, e.Username)
	}
	if e.After == nil {
		return before, nil
	}
	return putBack(now, before, after), nil
}

// putBack reverts a change from before to after in now; see txn.Diff.
func putBack(now, before, after map[string]any) map[string]any {
	out := maps.Clone(now)
	if out == nil {
		out = map[string]any{}
	}
	for name := range after {
		if _, was := before[name]; !was {
			delete(out, name)
		}
	}
	for name, was := range before {
		out[name] = was
		a, inner := was.(map[string]any)
		b, both := after[name].(map[string]any)
		if c, ok := now[name].(map[string]any); inner && both && ok {
			out[name] = putBack(c, a, b)
		}
	}
	return out
}
