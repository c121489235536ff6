// Package appliedops stores the documents that declarative clients applied last.
package appliedops

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Applied writes the documents. It is safe for concurrent use.
type Applied struct{ *txn.Committer }

// New returns the operations on applied documents.
func New(c *txn.Committer) *Applied { return &Applied{c} }

// AppliedWrite stores the document of an object.
type AppliedWrite struct {
	Kind applied.Kind
	Name string
	// Document is what the client applied. Secret values in it are replaced or refused.
	Document map[string]any
	// KeepEnv keeps the environment of a group's former document if Document has no env.
	KeepEnv bool
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
}

// AppliedWritten is the result of an AppliedWrite.
type AppliedWritten struct {
	// Before is nil if there was no document.
	Before *applied.Record
	// After is the record as written, or as a dry run would write it.
	After applied.Record
}

// Canonical returns the name as records spell it: roles and platforms are in upper case.
func Canonical(kind applied.Kind, name string) string {
	if kind == applied.Role || kind == applied.Catalog {
		return strings.ToUpper(name)
	}
	return name
}

// WriteApplied stores the document of an existing object. NotFound when the object does not exist, Invalid
// for a document with a field that must not be stored, TooLarge above applied.MaxDocument, MovedError when
// IfMatch does not match. It writes nothing when the document is the same as before.
func (o *Applied) WriteApplied(ctx context.Context, by txn.Actor, w AppliedWrite) (out AppliedWritten, err error) {
	w.Name = Canonical(w.Kind, w.Name)
	err = txn.InTime(ctx, func(ctx context.Context) error {
		rev, err := o.MutateWithin(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
			guard, err := o.object(ctx, s, w.Kind, w.Name)
			if err != nil {
				return txn.Change{}, err
			}
			old, err := txn.GetOptional(ctx, o.Store, keys.Applied(w.Kind, w.Name))
			if err == nil {
				err = txn.CheckRevision(what(w.Kind, w.Name), w.IfMatch, old.ModRev)
			}
			if err != nil {
				return txn.Change{}, err
			}
			doc, err := w.stored(s, old)
			if err != nil {
				return txn.Change{}, err
			}
			out = AppliedWritten{After: applied.Record{Mark: applied.Mark{Kind: w.Kind, Name: w.Name, By: by.User, At: o.Now()}, Document: doc}}
			action := "applied.create"
			if old.ModRev != 0 {
				out.Before, action = &old, "applied.update"
			}
			if bytes.Equal(old.Document, doc) {
				out.After = old
				return txn.Change{}, nil
			}
			if w.DryRun {
				return txn.Change{}, nil
			}
			return txn.Change{
				Guards: []store.Guard{guard},
				Writes: []store.Write{store.Replace(keys.Applied(w.Kind, w.Name), out.After, old.ModRev)},
				Audit:  txn.Entry{Action: action, Resource: "applied", ID: string(w.Kind) + "/" + w.Name},
			}, nil
		})
		if out.After.ModRev == 0 {
			out.After.ModRev = rev
		}
		return err
	})
	return out, err
}

// stored returns the document as it is stored.
func (w AppliedWrite) stored(s *view.Snapshot, old applied.Record) (json.RawMessage, error) {
	doc := txn.ToMap(w.Document)
	if _, given := doc["env"]; w.Kind == applied.Group && w.KeepEnv && !given {
		if env, had := txn.ToMap(old.Document)["env"]; had {
			doc["env"] = env
		}
	}
	if err := withoutSecrets(s, w.Kind, w.Name, doc); err != nil {
		return nil, err
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "appliedops.stored", err)
	}
	if len(b) > applied.MaxDocument {
		return nil, errs.New(errs.TooLarge, "the document of %s %s has %d bytes of JSON, the most is %d (64 KiB): split the object, or move large values into templates", w.Kind, w.Name, len(b), applied.MaxDocument)
	}
	return b, nil
}

// ReadApplied returns the document of an object. Values that became secret since it was stored are hidden.
// NotFound when the object has no document.
func (o *Applied) ReadApplied(ctx context.Context, kind applied.Kind, name string) (out applied.Record, err error) {
	name = Canonical(kind, name)
	if !validate.ValidSegment(name) {
		return out, none(kind, name)
	}
	err = txn.InTime(ctx, func(ctx context.Context) error {
		out, err = store.Get(ctx, o.Store, keys.Applied(kind, name))
		if errs.Is(err, errs.NotFound) {
			return none(kind, name)
		}
		return err
	})
	if err != nil || kind != applied.Group {
		return out, err
	}
	doc := txn.ToMap(out.Document)
	hideGroupValues(o.Snapshot(), fleet.GroupName(name), doc)
	out.Document, err = json.Marshal(doc)
	return out, errs.WrapAs(errs.Internal, "appliedops.ReadApplied", err)
}

// DeleteApplied removes the document of an object; the object stays. NotFound when it has no
// document, MovedError when ifMatch is not 0 and not its revision. With dryRun it only checks.
func (o *Applied) DeleteApplied(ctx context.Context, by txn.Actor, kind applied.Kind, name string, ifMatch int64, dryRun bool) error {
	name = Canonical(kind, name)
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		m, ok := s.Applied.Get(string(kind) + "/" + name)
		if !ok {
			return txn.Change{}, none(kind, name)
		}
		if err := txn.CheckRevision(what(kind, name), ifMatch, m.ModRev); err != nil || dryRun {
			return txn.Change{}, err
		}
		return txn.Change{
			Writes: []store.Write{store.Remove(keys.Applied(kind, name), m.ModRev)},
			Audit:  txn.Entry{Action: "applied.delete", Resource: "applied", ID: string(kind) + "/" + name},
		}, nil
	})
	return err
}

func what(kind applied.Kind, name string) string {
	return "the applied document of " + string(kind) + " " + txn.Clip(name)
}

func none(kind applied.Kind, name string) error {
	return errs.New(errs.NotFound, "no document was applied for %s %s", kind, txn.Clip(name))
}

// object returns a guard that holds while an object stays as it is. NotFound when it does not exist.
func (o *Applied) object(ctx context.Context, s *view.Snapshot, kind applied.Kind, name string) (store.Guard, error) {
	missing := errs.New(errs.NotFound, "there is no %s %s: create the object before you store its document", kind, txn.Clip(name))
	if kind != applied.TemplateSource {
		if guard, ok := viewed(s, kind, name); ok {
			return guard, nil
		}
		return store.Guard{}, missing
	}
	if !validate.ValidSegment(name) {
		return store.Guard{}, missing
	}
	one, err := txn.GetOptional(ctx, o.Store, keys.TemplateSource(name))
	if err == nil && one.ModRev == 0 {
		err = missing
	}
	return store.Unchanged(keys.TemplateSource(name), one.ModRev), err
}

// viewed is object for kinds that are in the view.
func viewed(s *view.Snapshot, kind applied.Kind, name string) (store.Guard, bool) {
	switch kind {
	case applied.Group:
		if g, ok := s.Groups.Get(fleet.GroupName(name)); ok && !g.Deleting {
			return store.Unchanged(keys.Group(g.Name), g.ModRev), true
		}
	case applied.Network:
		if n, ok := s.Networks.Get(name); ok {
			return store.Unchanged(keys.Network(name), n.ModRev), true
		}
	case applied.Schedule:
		if sched, ok := s.Schedules.Get(name); ok {
			return store.Unchanged(keys.Schedule(name), sched.ModRev), true
		}
	case applied.Overlay:
		if over, ok := s.Overlays.Get(name); ok {
			return store.Unchanged(keys.Overlay(name), over.ModRev), true
		}
	case applied.Quota:
		if q, ok := s.Quotas.Get(name); ok {
			return store.Unchanged(keys.Quota(name), q.ModRev), true
		}
	case applied.Notice:
		if n, ok := s.Notices.Get(name); ok {
			return store.Unchanged(keys.Notice(name), n.ModRev), true
		}
	case applied.Role:
		if r, ok := auth.RoleOf(s, name); ok { // a built-in role without a record has revision 0
			return store.Unchanged(keys.Role(name), r.ModRev), true
		}
	case applied.Binding:
		if b, ok := s.Bindings.Get(name); ok {
			return store.Unchanged(keys.Binding(name), b.ModRev), true
		}
	case applied.Catalog:
		if p, ok := s.Catalog.Get(name); ok {
			return store.Unchanged(keys.CatalogPlatform(name), p.ModRev), true
		}
	case applied.TemplateSource: // not in the view
	}
	return store.Guard{}, false
}
