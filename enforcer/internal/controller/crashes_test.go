package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestRecordedCrashesAreBoundedInTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := plan.DefaultLimits()
	l.CrashRecords = 5
	record := func(id, g string, ago time.Duration) {
		w.commit(store.Create(keys.Crash(id), reports.Crash{ID: id, Group: fleet.GroupName(g), At: time.Now().Add(-ago)}),
			store.Create(keys.CrashTail(id), reports.NewCrashTail(id, []string{"x"}, false)))
	}
	record("other", "quiet", 20*24*time.Hour)
	record("old", "quiet", 31*24*time.Hour)
	for n := range 9 {
		record(fmt.Sprintf("loop-%d", n), "loops", time.Duration(9-n)*time.Minute)
	}
	w.enforcer("a", l) // it takes existing times as they were written
	w.until("the bound", func(s *view.Snapshot) bool {
		_, other := s.Crashes.Get("other")
		_, newest := s.Crashes.Get("loop-8")
		return s.Crashes.Len() == 5 && other && newest
	})
	for id, kept := range map[string]bool{"other": true, "old": false, "loop-4": false, "loop-5": true} {
		if _, err := store.Get(t.Context(), w.client, keys.CrashTail(id)); errs.Is(err, errs.NotFound) == kept {
			t.Errorf("the tail of %s: %v", id, err)
		}
	}
}

func TestAPauseHoldsUnderTheNextOwnerAndEndsWhenItIsReset(t *testing.T) {
	t.Parallel()
	l := plan.DefaultLimits()
	l.CrashLimit = 1
	w := newWorld(t)
	_, stop := w.enforcer("a", l)
	w.group("lobby", minimum(1))
	w.crash(w.untilLiving("lobby", 1)[0].Intent.ID)
	s := w.until("a pause", func(s *view.Snapshot) bool { _, ok := s.CrashLoops.Get("lobby"); return ok })
	before, _ := s.CrashLoops.Get("lobby")
	stop()
	w.enforcer("b", l)
	w.group("other", minimum(1))
	w.untilLiving("other", 1) // proves that the enforcer has started
	s = w.view.Snapshot()
	if after, _ := s.CrashLoops.Get("lobby"); after == nil || after.ModRev != before.ModRev || len(living(s, "lobby")) != 0 {
		t.Errorf("under the next owner: %+v with %d living", after, len(living(s, "lobby")))
	}
	g, _ := s.Groups.Get("lobby")
	next := *g
	next.CrashesResetAt = time.Now().UTC()
	w.commit(store.Replace(keys.Group("lobby"), next, g.ModRev))
	w.untilLiving("lobby", 1)
	w.until("the end of the crash loop", func(s *view.Snapshot) bool { _, ok := s.CrashLoops.Get("lobby"); return !ok })
}
