package timetable

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
)

// backups is a schedule that is due each hour.
func backups() *schedule.Schedule {
	return &schedule.Schedule{
		Name: "backups", Group: "game", Action: schedule.Backup, Backup: &schedule.BackupSettings{Keep: 3}, Cron: "0 * * * *",
		Overlap: schedule.Skip, Enabled: true, Since: start,
	}
}

func TestABackupConcernsInstancesThatHaveEndedToo(t *testing.T) {
	s := newSim(t, backups())
	s.become(1, fleet.Stopped)
	s.runUntil(time.Hour)
	s.acted(t, act{time.Hour, 1, schedule.Backup, "", "game-1"}, act{time.Hour, 1, schedule.Backup, "", "game-2"})
	s.results(t, schedule.Completed)
}

func TestALongBackupIsAwaitedByTheGatewayThatMakesIt(t *testing.T) {
	s := newSim(t, backups())
	s.now = start.Add(time.Hour)
	begun := s.decide()
	if len(begun.Do) != 2 {
		t.Fatalf("%+v", begun)
	}
	s.now = start.Add(2 * time.Hour) // the next one is due
	in := s.input()
	in.Acting = true
	d := Decide(in)
	if len(d.Do) != 0 || len(d.Ended) != 1 || d.Ended[0].Result != schedule.Skipped || d.State.Current == nil {
		t.Errorf("%+v", d)
	}
	s.record(begun)
	s.settle()
	s.results(t, schedule.Skipped, schedule.Completed)
}

func TestABackupWhoseGatewayEndedIsNotMadeTwice(t *testing.T) {
	s := newSim(t, backups())
	s.now = start.Add(time.Hour)
	s.decide()
	s.alive = schedule.Holder{Replica: "b", Epoch: 2}
	s.settle()
	s.acted(t)
	s.results(t, schedule.Interrupted)
}
