// Package auditops reads the audit trail: changes of the fleet, the history of an object, and how
// an object was at a time in the past.
package auditops

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Trail reads the audit trail: the changes of the fleet and the past states of objects. It is safe
// for concurrent use.
type Trail struct {
	*txn.Committer
}

// New returns the operations on the audit trail.
func New(c *txn.Committer) *Trail {
	return &Trail{Committer: c}
}

// AuditQuery selects audit entries. Empty fields select all.
type AuditQuery struct {
	User, Action, ResourceType, ResourceID string
	// Class is the name of a fleet.AuditClass.
	Class string
	// Entries are from Since, inclusive, to Until, exclusive.
	Since, Until time.Time
	// Before is the ID of an entry; only older ones are returned.
	Before string
}

func (q AuditQuery) wants(e *account.AuditSlip) bool {
	is := func(wanted, has string) bool { return wanted == "" || wanted == has }
	return is(q.User, e.Username) && is(q.Action, e.Action) && is(q.ResourceType, e.ResourceType) && is(q.ResourceID, e.ResourceID) &&
		(q.Class == "" || q.Class == e.Class().String()) &&
		!e.CreatedAt.Before(q.Since) && (q.Until.IsZero() || e.CreatedAt.Before(q.Until))
}

// AuditPage is one page of audit entries.
type AuditPage struct {
	Entries []account.AuditEntry
	// Total is the number of selected entries, including those after Before.
	Total int
	// More is true if there are older entries.
	More bool
}

// Audit returns at most n selected audit entries, newest first, starting at index from. It reads
// only these from etcd.
func (o *Trail) Audit(ctx context.Context, q AuditQuery, from, n int) (out AuditPage, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		s, err := o.Current(ctx)
		if err != nil {
			return err
		}
		var slips []*account.AuditSlip
		passed := 0
		for id, e := range s.Audit.Back() {
			if !q.wants(e) {
				continue
			}
			out.Total++
			if q.Before != "" && id >= q.Before {
				continue
			}
			if passed++; passed > from && len(slips) < n {
				slips = append(slips, e)
			}
		}
		out.More = passed > from+n
		out.Entries, err = o.entries(ctx, slips)
		return err
	})
	return out, errs.Wrap("operate.Audit", err)
}

// entriesAtOnce bounds the entries that are read in one transaction.
const entriesAtOnce = 100

// entries reads the entries of slips. It leaves out entries that were removed meanwhile.
func (o *Trail) entries(ctx context.Context, slips []*account.AuditSlip) (out []account.AuditEntry, err error) {
	for some := range slices.Chunk(slips, min(entriesAtOnce, o.Store.MaxOps())) {
		var names []keys.Key[account.AuditEntry]
		for _, e := range some {
			names = append(names, keys.Audit(e.ID))
		}
		part, err := store.GetAll(ctx, o.Store, names)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

// accessAgain is for how long further reads of the same object by the same caller are not audited.
const accessAgain = time.Hour

// NoteRead audits, in the background, that a caller reads the console or files of a resource: once
// per caller, network and path within accessAgain. path may be empty.
func (o *Trail) NoteRead(by txn.Actor, action, resource, id, path string) {
	key := "read\x00" + by.User + "\x00" + by.TokenID + "\x00" + account.NetworkOf(by.IP) + "\x00" + action + "\x00" + resource + "\x00" + id + "\x00" + path
	e := txn.Entry{Action: action, Resource: resource, ID: id, Details: txn.Clip(path), Objects: []string{"read/" + resource + "/" + id}}
	o.NoteOnce(key, accessAgain, func(ctx context.Context) error {
		_, err := o.RecordEntry(ctx, by, e)
		return err
	})
}
