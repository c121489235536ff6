package fleet

import (
	"slices"
	"testing"
	"time"
)

func TestCrashedAt(t *testing.T) {
	asked := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ended := asked.Add(time.Minute)
	tests := []struct {
		rule string
		edit func(*Instance)
		want time.Time
	}{
		{"an exit with an error is a crash", func(*Instance) {}, ended},
		{"an exit nobody asked for is one", func(i *Instance) { i.Status.State, i.Status.Reason = Stopped, ReasonExitedByItself }, ended},
		{"so is what could not be started", func(i *Instance) { i.Status.State, i.Status.Reason = Failed, ReasonStartFailed }, ended},
		{"a stop somebody asked for is none", func(i *Instance) { i.Intent.Desired = DesiredStopped }, time.Time{}},
		{"what runs has not crashed", func(i *Instance) { i.Status.State = Online }, time.Time{}},
		{"an earlier generation's crash is not this one's", func(i *Instance) { i.Intent.Generation = 3 }, time.Time{}},
		{"a rebooted host is none", func(i *Instance) { i.Status.Reason = ReasonNodeRebooted }, time.Time{}},
		{"a lost node is none", func(i *Instance) { i.Status.Reason = ReasonNodeLost }, time.Time{}},
		{"the end of one that was replaced because its node was lost is none", func(i *Instance) { i.Intent.Displaced = true }, time.Time{}},
		{"a stranger on its port is none", func(i *Instance) { i.Status.State, i.Status.Reason = Failed, ReasonPortTaken }, time.Time{}},
		{"a node that does not offer the runtime is none", func(i *Instance) { i.Status.State, i.Status.Reason = Failed, ReasonRuntimeMissing }, time.Time{}},
		{"a node cut off is none", func(i *Instance) { i.Status.State, i.Status.Reason = Stopped, ReasonSessionExpiring }, time.Time{}},
		{"an agent told to stop all is none", func(i *Instance) { i.Status.Reason = ReasonAgentShutdown }, time.Time{}},
		{"a stop on its own node is none", func(i *Instance) { i.Status.State, i.Status.Reason = Stopped, ReasonStoppedLocally }, time.Time{}},
		{"no crash before the generation was asked for", func(i *Instance) { i.Status.FinishedAt = asked.Add(-time.Hour) }, asked},
		{"without a time of the end, that of the report", func(i *Instance) { i.Status.FinishedAt = time.Time{} }, ended.Add(time.Second)},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			i := &Instance{
				Intent: Intent{ID: "aaaaaa", Desired: DesiredRunning, Generation: 2, GenerationAt: asked},
				Status: &Status{Generation: 2, State: Crashed, Reason: ReasonExited, FinishedAt: ended, ChangedAt: ended.Add(time.Second)},
			}
			tt.edit(i)
			at, ok := i.CrashedAt()
			if ok == tt.want.IsZero() || !at.Equal(tt.want) {
				t.Errorf("CrashedAt = %v, %v, want %v", at, ok, tt.want)
			}
			if n := len(i.Crashes()); ok != (n == 1) {
				t.Errorf("%d crashes", n)
			}
		})
	}
}

func TestCrashesKeepsTheLatest(t *testing.T) {
	start := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	i := &Instance{
		Intent: Intent{Desired: DesiredRunning, Generation: 1},
		Status: &Status{Generation: 1, State: Crashed, Reason: ReasonExited, FinishedAt: start.Add(time.Hour), ChangedAt: start.Add(time.Hour)},
	}
	for n := range CrashHistory {
		i.Intent.Crashes = append(i.Intent.Crashes, start.Add(time.Duration(n)*time.Minute))
	}
	want := append(slices.Clone(i.Intent.Crashes[1:]), start.Add(time.Hour))
	if got := i.Crashes(); !slices.EqualFunc(got, want, time.Time.Equal) {
		t.Errorf("crashes = %v, want %v", got, want)
	}
}

func TestCrashesCountsRestartsInPlace(t *testing.T) {
	end := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	i := &Instance{
		Intent: Intent{Desired: DesiredRunning, Generation: 1},
		Status: &Status{
			Generation: 1, State: Crashed, Reason: ReasonExited, FinishedAt: end, ChangedAt: end,
			Crashes: []time.Time{end.Add(-2 * time.Minute), end.Add(-time.Minute)},
		},
	}
	if got := i.Crashes(); len(got) != 3 || !got[2].Equal(end) {
		t.Errorf("crashes = %v", got)
	}
	i.Status.Reason = ReasonDiskFull
	if got := i.Crashes(); len(got) != 0 {
		t.Errorf("for want of room: %v", got)
	}
}

func TestPauseEndsByTimeOrSpecChange(t *testing.T) {
	until := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	before := func(minutes int) time.Time { return until.Add(-time.Duration(minutes) * time.Minute) }
	loop := CrashLoop{
		GroupRevision: 2, Ancestors: map[GroupName]int64{"p": 7, "q": 3},
		Since: before(9), PausedAt: before(5), PausedUntil: until,
	}
	ancestors := func(p int64, pAt time.Time, q int64, qAt time.Time) []*Group {
		return []*Group{{Name: "p", Revision: p, UpdatedAt: pAt}, {Name: "q", Revision: q, UpdatedAt: qAt}}
	}
	tests := []struct {
		rule      string
		revision  int64
		updated   time.Time
		ancestors []*Group
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
		{"of a parent that it does not know it is not known whether it was changed", 2, before(20), []*Group{{Name: "r", Revision: 8, UpdatedAt: before(3)}}, until},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got := loop.EndsAt(&Group{Revision: tt.revision, UpdatedAt: tt.updated}, tt.ancestors); !got.Equal(tt.want) {
				t.Errorf("EndsAt = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestRestartingInstanceIsLiving(t *testing.T) {
	i := &Instance{
		Intent: Intent{Desired: DesiredStopped, RestartPending: true, Generation: 1},
		Status: &Status{Generation: 1, State: Stopped},
	}
	if !i.Living(false) {
		t.Error("a restarting instance does not count")
	}
	i.Intent.RestartPending = false
	if i.Living(false) {
		t.Error("a stopped instance counts")
	}
}
