package view

import (
	"iter"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/account"
)

// History returns the audit entries about one object, newest first.
func (s *Snapshot) History(kind, name string) iter.Seq[*account.AuditSlip] {
	prefix := pair(kind + "/" + name + "\x00")
	return func(yield func(*account.AuditSlip) bool) {
		for k, e := range s.auditOf.backFrom(prefix + "\xff") {
			if !strings.HasPrefix(string(k), string(prefix)) || !yield(e) {
				return
			}
		}
	}
}

func (s *Snapshot) applyAudit(c *Change) {
	set(s.Audit, c.Key[0], c)
	if old, ok := c.Before.(*account.AuditSlip); ok {
		s.countAudit(old, -1)
		for _, object := range old.Concerns() {
			s.auditOf.tree.Delete(pairOf(object, old.ID))
		}
	}
	if e, ok := c.After.(*account.AuditSlip); ok {
		s.countAudit(e, 1)
		for _, object := range e.Concerns() {
			s.auditOf.tree.Set(pairOf(object, e.ID), e)
		}
	}
}

// countAudit adds entries to the totals, or subtracts them.
func (s *Snapshot) countAudit(e *account.AuditSlip, entries int) {
	total := &s.AuditTotals[e.Class()]
	total.Entries += entries
	total.Bytes += entries * e.Bytes
}
