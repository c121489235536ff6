package replay

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/enforcer/internal/scale"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

var start = time.Date(2030, 1, 4, 12, 0, 0, 0, time.UTC)

func spec() *fleet.GroupSpec {
	s := fleet.DefaultSpec()
	s.Scaling.Min, s.Scaling.Max, s.Players.Max = 1, 20, 10
	return &s
}

// situation returns a record of a group with an instance for each number of players. Those without
// players are idle since the start.
func situation(minute int, players ...int) Record {
	at := start.Add(time.Duration(minute) * time.Minute)
	in := scale.Input{Count: len(players), Own: len(players), Wall: at}
	for n, p := range players {
		i := scale.Instance{ID: fleet.InstanceID(fmt.Sprintf("i%d", n)), Instance: scaling.Instance{Players: p}}
		if p == 0 {
			i.IdleSince = start
		}
		in.Instances = append(in.Instances, i)
	}
	return NewRecord(in, scale.Outcome{}, nil, at)
}

func none(map[string]scaling.Answer) []scaling.Rule { return nil }

func TestOtherRulesDecideOtherwise(t *testing.T) {
	records := []Record{situation(0, 5), situation(1, 5), situation(2, 5), situation(20, 1), situation(40, 1)}
	records[1].Decision = &scaling.Decision{From: 1, To: 2, Reason: fleet.ReasonFullness, Message: "because", At: records[1].At}
	s := spec()
	out := Run(records, s, none) // 5 of 10 slots are below the threshold
	if out.Records != 5 || !out.Since.Equal(start) || !out.Until.Equal(start.Add(40*time.Minute)) {
		t.Errorf("%+v", out)
	}
	if out.Then.Up != 1 || out.Then.Down != 0 || len(out.Then.Decisions) != 1 || out.Then.Decisions[0].To != 2 {
		t.Errorf("then: %+v", out.Then)
	}
	if out.Would.Up != 0 || out.Would.Down != 0 || out.Would.Most != 1 || out.Would.Average != 1 {
		t.Errorf("with the same rules: %+v", out.Would)
	}
	s.Scaling.UpThreshold = 0.2
	out = Run(records, s, none)
	if out.Would.Up != 1 || out.Would.Down != 1 || out.Would.Most != 3 || out.Would.Least != 1 || len(out.Notes) != 1 {
		t.Errorf("with a threshold of 0.2: %+v %v, want up to 3 and down to 1", out.Would, out.Notes)
	}
	if last := out.Would.Decisions[1]; last.From != 3 || last.To != 1 || last.Reason != fleet.ReasonIdle {
		t.Errorf("the last decision is %+v", last)
	}
}

func TestAnswersOfWebhooksAreReplayed(t *testing.T) {
	first, second := situation(0, 1), situation(5, 1)
	second.Answers = map[string]scaling.Answer{"ai": {Instances: 4, Given: true, Message: "its server answered 4"}}
	out := Run([]Record{first, second}, spec(), func(a map[string]scaling.Answer) []scaling.Rule {
		return []scaling.Rule{{Name: "ai", Ask: func(scaling.Metrics, time.Time) scaling.Answer { return a["ai"] }}}
	})
	if len(out.Answers) != 1 || out.Answers[0].Policy != "ai" || *out.Answers[0].Instances != 4 || out.Answers[0].Message != "its server answered 4" {
		t.Errorf("answers %+v", out.Answers)
	}
	if out.Would.Up != 1 || out.Would.Decisions[0].Policy != "ai" || !out.Would.Decisions[0].At.Equal(second.Wall) {
		t.Errorf("%+v", out.Would)
	}
}

func TestADecisionBetweenTwoRecords(t *testing.T) {
	r := situation(0, 1)
	window := func(map[string]scaling.Answer) []scaling.Rule {
		return []scaling.Rule{{Name: "evening", Ask: func(_ scaling.Metrics, wall time.Time) scaling.Answer {
			begin := start.Add(30 * time.Minute)
			if wall.Before(begin) {
				return scaling.Answer{Until: begin}
			}
			return scaling.Answer{Instances: 3, Given: true, Message: "its window is open"}
		}}}
	}
	out := Run([]Record{r, situation(60, 1)}, spec(), window)
	if out.Would.Up != 1 || !out.Would.Decisions[0].At.Equal(start.Add(30*time.Minute)) {
		t.Errorf("%+v, want a decision when the window begins", out.Would)
	}
	if want := 2.0; out.Would.Average != want {
		t.Errorf("on average %v, want %v", out.Would.Average, want)
	}
}

func TestAConstantDemandIsAnsweredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := spec()
		s.Scaling.UpThreshold = rapid.Float64Range(0.05, 1).Draw(t, "threshold")
		s.Scaling.BufferSlots, s.Scaling.BufferPercent = rapid.IntRange(0, 60).Draw(t, "slots"), rapid.IntRange(0, 99).Draw(t, "percent")
		s.Scaling.CooldownSeconds, s.Scaling.DownAfterSeconds = rapid.IntRange(0, 300).Draw(t, "cooldown"), rapid.IntRange(0, 600).Draw(t, "downAfter")
		per := rapid.IntRange(1, 15).Draw(t, "per")
		rules := func(map[string]scaling.Answer) []scaling.Rule {
			return []scaling.Rule{{Name: "p", Ask: func(m scaling.Metrics, _ time.Time) scaling.Answer {
				return scaling.Answer{Instances: m.Players / per, Given: true, Message: "it is a test"}
			}}}
		}
		players := rapid.SliceOfN(rapid.IntRange(0, 10), 1, 8).Draw(t, "players")
		var records []Record
		for minute := range 120 {
			records = append(records, situation(minute, players...))
		}
		out := Run(records, s, rules)
		for _, d := range out.Would.Decisions {
			if d.At.Sub(start) > time.Hour {
				t.Fatalf("still deciding after an hour of the same players: %+v", out.Would.Decisions)
			}
		}
		if out.Would.Up > 1 {
			t.Fatalf("%d decisions to start instances: %+v", out.Would.Up, out.Would.Decisions)
		}
	})
}

func TestTheRingIsBounded(t *testing.T) {
	r := NewRing()
	r.Add("lobby", situation(0, 1))
	r.Add("lobby", situation(0, 2)) // the last one is recent
	decided := situation(0, 3)
	decided.Decision = &scaling.Decision{From: 1, To: 2}
	r.Add("lobby", decided)
	if got := r.Of("lobby"); len(got) != 2 || got[1].Decision == nil {
		t.Errorf("%d records, want two", len(got))
	}
	for minute := range maxRecords + 10 {
		r.Add("lobby", situation(minute+1, 1))
	}
	got := r.Of("lobby")
	if len(got) != maxRecords || !got[len(got)-1].At.Equal(start.Add((maxRecords+10)*time.Minute)) {
		t.Errorf("%d records, want the latest %d", len(got), maxRecords)
	}
	huge := situation(0)
	huge.Input.Instances = make([]scale.Instance, maxSamples/2)
	for minute := range 4 {
		huge.At = start.Add(time.Duration(minute) * time.Minute)
		r.Add("huge", huge)
	}
	if n := len(r.Of("huge")); n != 1 {
		t.Errorf("%d records of a huge group, want one", n)
	}
	if r.Forget("huge"); len(r.Of("huge")) != 0 || r.samples > maxSamples {
		t.Error("a forgotten group has records")
	}
	r.Forget("lobby")
	if r.samples != 0 {
		t.Errorf("%d samples are left", r.samples)
	}
}
