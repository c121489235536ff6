package view_test

import (
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func entry(id, kind, resource string, objects ...string) store.Write {
	return store.Create(keys.Audit(id), account.AuditEntry{
		AuditMark: account.AuditMark{ID: id, ResourceType: kind, ResourceID: resource, Objects: objects},
		Details:   "said",
	})
}

func TestHistoryOfAnObject(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	commit := func(writes ...store.Write) *view.Snapshot {
		t.Helper()
		rev, err := c.Commit(t.Context(), store.Txn{Writes: writes})
		if err != nil {
			t.Fatal(err)
		}
		s, err := v.WaitRev(bounded(t), rev)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := commit(
		entry("1", "group", "a"), entry("2", "group", "ab"), entry("3", "user", "a"), entry("4", "group", "a"),
		entry("5", "user", "a", "user/a", "user/b"), entry("6", "catalog", "PAPER 1", "catalog/PAPER"),
		entry("7", "group", "a", "group/a", "instance/x"),
	)
	find := func(s *view.Snapshot, kind, name string, want ...string) {
		t.Helper()
		var got []string
		for e := range s.History(kind, name) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the history of %s %s is %v, want %v", kind, name, got, want)
		}
	}
	find(s, "group", "a", "7", "4", "1")
	find(s, "group", "ab", "2")
	find(s, "user", "a", "5", "3")
	find(s, "user", "b", "5")
	find(s, "catalog", "PAPER", "6")
	find(s, "catalog", "PAPER 1")
	find(s, "group", "")
	find(s, "instance", "x", "7")
	total := s.AuditTotals[account.AuditChange]
	if total.Entries != 7 || total.Bytes < 7*len(`{"id":"1"}`) {
		t.Errorf("7 entries are %+v", total)
	}
	var gone []store.Write
	for id, e := range s.Audit.All() {
		if id != "4" {
			gone = append(gone, store.Remove(keys.Audit(id), e.ModRev))
		}
	}
	next := commit(gone...)
	find(next, "group", "a", "4")
	find(next, "user", "a")
	find(next, "user", "b")
	find(s, "user", "b", "5")
	if first, _, _ := next.Audit.First(); first != "4" || next.AuditTotals[account.AuditChange].Entries != 1 || next.AuditTotals[account.AuditChange].Bytes >= total.Bytes {
		t.Errorf("after it are left %s, %+v", first, next.AuditTotals)
	}
	mixed := commit(
		store.Create(keys.Audit("8"), account.AuditEntry{AuditMark: account.AuditMark{ID: "8", Username: account.InstanceActor("x"), Action: "player.transfer"}}),
		store.Create(keys.Audit("9"), account.AuditEntry{AuditMark: account.AuditMark{ID: "9", Action: account.ActionLoginFailed}}),
	)
	for class, want := range map[account.AuditClass]int{account.AuditChange: 1, account.AuditWorkload: 1, account.AuditUnproven: 1, account.AuditLogin: 0} {
		if got := mixed.AuditTotals[class].Entries; got != want {
			t.Errorf("%v has %d entries, want %d", class, got, want)
		}
	}
}
