package proctest_test

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

func TestAProcessIsFoundByItsMarksWhileItLives(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("cat")
	cmd.Dir, cmd.Env = dir, []string{"MARK=one", "OTHER=two"}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	found := func() []int {
		return proctest.Where(t, func(p proctest.Process) bool { return p.Dir() == dir && p.Carries("MARK=one") })
	}
	if pids := found(); !slices.Equal(pids, []int{pid}) {
		t.Errorf("found %v, want %d", pids, pid)
	}
	for _, not := range []string{"MARK", "MARK=on", "ARK=one"} {
		if proctest.Process(pid).Carries(not) {
			t.Errorf("it carries %s", not)
		}
	}
	if !proctest.Lives(pid) || proctest.StartTime(t, pid) == 0 {
		t.Error("it does not live")
	}
	_ = stdin.Close() // which ends it
	await.That(t, "its end", func() string { return await.Unless(!proctest.Lives(pid), "process %d", pid) })
	if err := cmd.Wait(); err != nil || proctest.Lives(pid) || len(found()) > 0 {
		t.Errorf("after its end: %v, found %v", err, found())
	}
}

func TestBystandersLiveAsLongAsTheTest(t *testing.T) {
	one, other := proctest.Bystander(t), proctest.Bystander(t)
	if one == other || !proctest.Lives(one) || !proctest.Lives(other) {
		t.Errorf("%d and %d", one, other)
	}
	if proctest.StartTime(t, one) > proctest.StartTime(t, other) {
		t.Error("the later one began first")
	}
}
