package plan

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
)

func finished(when time.Duration) func(*fleet.Instance) {
	return func(i *fleet.Instance) {
		createdAt(at(-24 * time.Hour))(i)
		wantsStop(false)(i)
		in(alive, fleet.Stopped, fleet.ReasonStopRequested, at(when))(i)
	}
}

func TestRetention(t *testing.T) {
	tests := []struct {
		rule  string
		setup func(*sim)
		wake  time.Duration
		want  []string
	}{
		{"a record is kept for an hour", func(s *sim) {
			s.add(finished(-59 * time.Minute))
		}, time.Minute, nil},
		{"after an hour it goes", func(s *sim) {
			s.add(finished(-time.Hour))
		}, 0, []string{"delete_instance i00001: Retention"}},
		{"an unplaced one goes an hour after its stop", func(s *sim) {
			s.add(manual, wantsStop(false))
		}, 59 * time.Minute, nil},
		{"too many: the oldest go", func(s *sim) {
			s.limits.KeepRecords = 1
			s.add(finished(-2 * time.Minute))
			s.add(finished(-3 * time.Minute))
			s.add(finished(-time.Minute))
		}, 59 * time.Minute, []string{"delete_instance i00002: Retention", "delete_instance i00001: Retention"}},
		{"crashes that the back-off counts are not pushed out", func(s *sim) {
			s.limits.KeepRecords = 1
			s.add(crashed(at(-4 * time.Minute)))
			s.add(finished(-3 * time.Minute))
			s.add(finished(-2 * time.Minute))
		}, time.Minute, []string{"delete_instance i00002: Retention"}},
		{"what holds a node is not finished", func(s *sim) {
			i := s.add(finished(-2 * time.Hour))
			i.Status.State = fleet.Offline
			ordered(fleet.OrderStop, at(-2*time.Hour))(i)
			s.sessions = nil
		}, 0, nil},
		{"a terminal record on a lost node goes", func(s *sim) {
			s.add(finished(-2 * time.Hour))
			s.sessions = nil
		}, 0, []string{"delete_instance i00001: Retention"}},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			s := newSim()
			tt.setup(s)
			s.expect(t, at(0), tt.wake, tt.want...)
		})
	}
}

func TestPlansGoWhenNobodyRefersToThemForAWhile(t *testing.T) {
	stored := map[string]*fleet.StoredPlan{
		"used":  {TouchedAt: at(-9 * time.Hour)},
		"old":   {TouchedAt: at(-time.Hour), Plan: fleet.Plan{Group: "g"}},
		"young": {TouchedAt: at(-50 * time.Minute)},
		"fresh": {TouchedAt: at(0)},
	}
	actions, wake := Plans(maps.All(stored), func(d string) bool { return d == "used" }, DefaultLimits(), at(0))
	var got []string
	for _, a := range actions {
		got = append(got, fmt.Sprint(a.Kind, " ", a.Digest, " of ", a.Group))
	}
	if d := cmp.Diff([]string{"collect_plan old of g"}, got); d != "" {
		t.Error(d)
	}
	if !wake.Equal(at(10 * time.Minute)) {
		t.Errorf("wake = %v, want in 10 minutes", wake)
	}
}
