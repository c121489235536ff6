package operate

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ObjectKind is a kind of objects whose history is kept, as the audit calls it.
type ObjectKind string

// The kinds.
const (
	GroupObject    ObjectKind = "group"
	InstanceObject ObjectKind = "instance"
	NodeObject     ObjectKind = "node"
	QuotaObject    ObjectKind = "quota"
	UserObject     ObjectKind = "user"
	RoleObject     ObjectKind = "role"
	CatalogObject  ObjectKind = "catalog"
	SecretObject   ObjectKind = "secret"
	SourceObject   ObjectKind = "template-source"
)

// Past is how an object was.
type Past struct {
	// Fields are those the audit keeps of it.
	Fields map[string]any
	// Since is the change that made it so; nil when that was before the audit begins.
	Since *fleet.AuditSlip
}

// Moment is a time in the past: a revision, or where that is 0 a time.
type Moment struct {
	Revision int64
	Time     time.Time
}

// isBefore reports whether an entry was made after the moment.
func (m Moment) isBefore(e *fleet.AuditSlip) bool {
	if m.Revision != 0 {
		return e.ModRev > m.Revision
	}
	return e.CreatedAt.After(m.Time)
}

// History are at most n changes of an object, newest first, from the one at from, and how
// many are kept. NotFound when there is no such object and nothing is known of one.
func (o *Operations) History(ctx context.Context, kind ObjectKind, name string, from, n int) (out []fleet.AuditEntry, total int, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		s, err := o.current(ctx)
		if err != nil {
			return err
		}
		name = known(s, kind, name)
		slips := becoming(s, kind, name)
		if total = len(slips); total == 0 {
			present, err := o.present(ctx, s, kind, name)
			if err == nil && present == nil {
				err = errs.New(errs.NotFound, "there is no %s %s, and nothing is known of one", kind, clip(name))
			}
			return err
		}
		from = min(from, total)
		out, err = o.entries(ctx, slips[from:min(from+n, total)])
		return err
	})
	return out, total, errs.Wrap("operate.History", err)
}

// Past is an object as it was, as far as that is shown to everybody who may see it. NotFound
// when there was none then, and when that is too long ago to be known.
func (o *Operations) Past(ctx context.Context, kind ObjectKind, name string, at Moment) (out Past, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		s, err := o.current(ctx)
		if err != nil {
			return err
		}
		name = known(s, kind, name)
		if out.Fields, err = o.present(ctx, s, kind, name); err != nil {
			return err
		}
		if s, err = o.current(ctx); err != nil { // not older than what was read: to undo twice is to undo
			return err
		}
		if err := recorded(s, at); err != nil {
			return err
		}
		later := becoming(s, kind, name)
		if n := slices.IndexFunc(later, func(e *fleet.AuditSlip) bool { return !at.isBefore(e) }); n >= 0 {
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
			return errs.New(errs.NotFound, "there was no %s %s then", kind, clip(name))
		}
		return nil
	})
	return out, errs.Wrap("operate.Past", err)
}

// becoming are the changes of an object, newest first: by their revisions, for clocks differ.
func becoming(s *view.Snapshot, kind ObjectKind, name string) []*fleet.AuditSlip {
	all := slices.Collect(s.History(string(kind), name))
	slices.SortFunc(all, func(a, b *fleet.AuditSlip) int { return cmp.Compare(b.ModRev, a.ModRev) })
	return all
}

// recorded refuses a moment before the audit begins.
func recorded(s *view.Snapshot, at Moment) error {
	var oldest *fleet.AuditSlip // entries of other classes change no object, and may be older
	for _, e := range s.Audit.All() {
		if e.Class() == fleet.AuditChange {
			oldest = e
			break
		}
	}
	switch {
	case oldest == nil:
		return errs.New(errs.NotFound, "nothing is known of what was: nothing was changed yet")
	case at.isBefore(oldest):
		return errs.New(errs.NotFound, "what was is known from %s on, which is revision %d", oldest.CreatedAt.Format(time.RFC3339), oldest.ModRev)
	}
	return nil
}

// known is a name as the audit has it: of an instance its id, which it has also been given
// for a name, and of others in their letters.
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
	case GroupObject, NodeObject, QuotaObject, SecretObject, SourceObject:
	}
	return name
}

// present is what the audit would keep of an object as it is; nil when there is none.
func (o *Operations) present(ctx context.Context, s *view.Snapshot, kind ObjectKind, name string) (map[string]any, error) {
	switch kind {
	case SecretObject:
		one, err := optional(ctx, o.cfg.Store, store.SecretKey(name))
		return fields(secretRecord(one)), err
	case SourceObject:
		one, err := optional(ctx, o.cfg.Store, store.TemplateSourceKey(name))
		return sourceRecord(one), err
	default:
		return fields(viewed(s, kind, name)), nil
	}
}

// viewed is present for what is in the view.
func viewed(s *view.Snapshot, kind ObjectKind, name string) any {
	switch kind {
	case GroupObject:
		if g, ok := s.Groups.Get(fleet.GroupName(name)); ok && !g.Deleting {
			_, record := groupRecords(s, nil, g)
			return record
		}
	case InstanceObject:
		if i, ok := s.Instances.Get(fleet.InstanceID(name)); ok {
			return instanceRecord(i.Intent)
		}
	case NodeObject:
		if d, ok := s.NodesDesired.Get(fleet.NodeID(name)); ok {
			return nodeRecord(*d)
		}
		if _, ok := s.Nodes.Get(fleet.NodeID(name)); ok {
			return nodeRecord(fleet.NodeDesired{})
		}
	case QuotaObject:
		if q, ok := s.Quotas.Get(name); ok {
			return quotaRecord(q)
		}
	case UserObject:
		if u, ok := s.Users.Get(name); ok {
			return showUser(*u)
		}
	case RoleObject:
		if r, ok := auth.RoleOf(s, name); ok {
			return rolePermissions(r)
		}
	case CatalogObject:
		if p, ok := s.Catalog.Get(name); ok {
			return catalogRecord(*p)
		}
	case SecretObject, SourceObject: // are not in the view
	}
	return nil
}

// fields are those of a record as JSON has them; nil of nil.
func fields(record any) map[string]any {
	if record == nil {
		return nil
	}
	return object(record)
}

// undone is an object as it was before a change.
func undone(kind ObjectKind, now map[string]any, e fleet.AuditEntry) (map[string]any, error) {
	switch {
	case e.ResourceType != string(kind):
		return nil, nil // with a change of something else it was made
	case e.Before == nil && e.After == nil:
		return now, nil // nothing of the object itself was changed
	case e.Before == nil:
		return nil, nil
	}
	before, after := object(e.Before), object(e.After)
	if before[truncated] == true || after[truncated] == true {
		return nil, errs.New(errs.NotFound, "what was cannot be told: the change at %s, %s by %s, was too large to be kept", e.CreatedAt.Format(time.RFC3339), e.Action, e.Username)
	}
	if e.After == nil {
		return before, nil
	}
	return putBack(now, before, after), nil
}

// putBack makes what changed to after what it was before; see changed.
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
