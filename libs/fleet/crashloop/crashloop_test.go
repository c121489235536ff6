package crashloop

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestPauseEndsByTimeOrSpecChange(t *testing.T) {
	until := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	before := func(minutes int) time.Time { return until.Add(-time.Duration(minutes) * time.Minute) }
	loop := Loop{
		GroupRevision: 2, Ancestors: map[fleet.GroupName]int64{"p": 7, "q": 3},
		Since: before(9), PausedAt: before(5), PausedUntil: until,
	}
	ancestors := func(p int64, pAt time.Time, q int64, qAt time.Time) []*fleet.Group {
		return []*fleet.Group{{Name: "p", Revision: p, UpdatedAt: pAt}, {Name: "q", Revision: q, UpdatedAt: qAt}}
	}
	tests := []struct {
		rule      string
		revision  int64
		updated   time.Time
		ancestors []*fleet.Group
		want      time.Time
	}{
		{"the spec that crashed is paused to the end", 2, before(1), nil, until},
		{"a changed spec ends it when it was changed", 3, before(1), nil, before(1)},
		{"a change after it changes nothing", 3, before(-1), nil, until},
		{"parents that are as they were when it began change nothing", 2, before(20), ancestors(7, before(7), 3, before(10)), until},
		{"nor do they by a clock that is ahead", 2, before(20), ancestors(7, before(1), 3, before(10)), until},
		{"a parent's change ends it", 2, before(20), ancestors(8, before(3), 3, before(10)), before(3)},
		{"by a clock that is behind it ends it too, and not before it began", 2, before(20), ancestors(8, before(30), 3, before(10)), before(5)},
		{"the last change of a parent counts", 2, before(20), ancestors(8, before(3), 4, before(2)), before(2)},
		{"a parent's change after it changes nothing", 2, before(20), ancestors(8, before(-1), 3, before(10)), until},
		{"of a parent that it does not know it is not known whether it was changed", 2, before(20), []*fleet.Group{{Name: "r", Revision: 8, UpdatedAt: before(3)}}, until},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got := loop.EndsAt(&fleet.Group{Revision: tt.revision, UpdatedAt: tt.updated}, tt.ancestors); !got.Equal(tt.want) {
				t.Errorf("EndsAt = %v, want %v", got, tt.want)
			}
		})
	}
}
