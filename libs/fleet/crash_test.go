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
		{"a node whose policy refuses what the group asks for is none", func(i *Instance) { i.Status.State, i.Status.Reason = Failed, ReasonNodePolicy }, time.Time{}},
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
