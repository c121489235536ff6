package instances

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store/view"
)

// shownCases returns instances that differ in every shown aspect.
func shownCases(at time.Time) map[string]*fleet.Instance {
	intent := fleet.Intent{ID: "abc123", Name: `a"uptimeMs":7`, Group: "lobby", Generation: 1, Desired: fleet.DesiredRunning, CreatedAt: at}
	placement := &fleet.Placement{Instance: "abc123", Node: "n1", Generation: 1, Port: 20000, Ports: map[string]int{"query": 20001}}
	status := func(state fleet.State) *fleet.Status {
		return &fleet.Status{Instance: "abc123", Node: "n1", Generation: 1, State: state, Message: `messageOr "uptimeMs":`, PID: 42, StartedAt: at, ChangedAt: at, FinishedAt: at.Add(time.Minute)}
	}
	return map[string]*fleet.Instance{
		"pending": {Intent: intent},
		"running": {Intent: intent, Placement: placement, Status: status(fleet.Online)},
		"crashed": {Intent: intent, Placement: placement, Status: status(fleet.Crashed)},
		"offline": {Intent: intent, Placement: placement, Status: status(fleet.Offline)},
	}
}

func TestAnInstanceThatIsKeptIsShownAsOneThatIsNot(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := view.New(nil, nil).Snapshot()
	for name, i := range shownCases(start) {
		h := newViewCache(nil)
		for _, now := range []time.Time{start.Add(-time.Hour), start, start.Add(1234567 * time.Millisecond), start.Add(100 * time.Hour)} {
			want, err := json.Marshal(InstanceOf(s, i, now))
			if err != nil {
				t.Fatal(err)
			}
			if got := h.of(s, i, now).Append(nil, now); string(got) != string(want) {
				t.Errorf("%s at %s:\ngot  %s\nwant %s", name, now, got, want)
			}
		}
	}
}

func TestLiveFiguresAreShownAsTheyAre(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s, i, h := view.New(nil, nil).Snapshot(), shownCases(now)["running"], newViewCache(nil)
	for _, live := range []upstream.Live{{PID: 1}, {PID: 1, Report: reports.InstanceReport{Players: 3, TPS: 19.5}}, {Attach: "tmux attach"}} {
		plain := InstanceOf(s, i, now)
		plain.addLive(live)
		want, err := json.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.living(s, i, live, now).Append(nil, now); string(got) != string(want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestWhatNobodyKnowsOfAnInstanceIsNull(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := view.New(nil, nil).Snapshot()
	cases := shownCases(now)
	for name, want := range map[string]string{
		"pending": `{"playerCount":0,"uptimeMs":null,"usedCpu":null,"usedDiskMb":null,"usedMemoryMb":null}`,
		"running": `{"playerCount":null,"uptimeMs":1000,"usedCpu":null,"usedDiskMb":null,"usedMemoryMb":null}`,
		"crashed": `{"playerCount":0,"uptimeMs":0,"usedCpu":null,"usedDiskMb":null,"usedMemoryMb":null}`,
		"offline": `{"playerCount":null,"uptimeMs":null,"usedCpu":null,"usedDiskMb":null,"usedMemoryMb":null}`,
	} {
		if got := figuresIn(t, InstanceOf(s, cases[name], now.Add(time.Second))); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	known := InstanceOf(s, cases["running"], now)
	known.addReport(reports.InstanceReport{PlayersKnown: true, Usage: reports.Usage{MemoryBytes: 1, CPUKnown: true, DiskKnown: true}})
	if got, want := figuresIn(t, known), `{"playerCount":0,"uptimeMs":0,"usedCpu":0,"usedDiskMb":0,"usedMemoryMb":1}`; got != want {
		t.Errorf("known figures: %s, want %s", got, want)
	}
}

// figuresIn returns the figures of an encoded instance.
func figuresIn(t *testing.T, i Instance) string {
	t.Helper()
	b, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, name := range []string{"playerCount", "uptimeMs", "usedMemoryMb", "usedCpu", "usedDiskMb"} {
		value, there := all[name]
		if !there {
			t.Errorf("%s is missing", name)
		}
		out[name] = value
	}
	if b, err = json.Marshal(out); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAnInstanceIsShownAnewWhenARecordOfItChanges(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s, h, before := view.New(nil, nil).Snapshot(), newViewCache(nil), shownCases(now)["running"]
	first := string(h.of(s, before, now).Append(nil, now))
	after := *before
	after.Intent.Desired = fleet.DesiredStopped
	if got := string(h.of(s, &after, now).Append(nil, now)); got == first {
		t.Errorf("still %s", got)
	}
}

func TestAPageThatIsKeptIsAsOneThatIsNot(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s, i := view.New(nil, nil).Snapshot(), shownCases(now)["running"]
	all := []*fleet.Instance{i, i, i}
	for _, w := range []server.Wanted{{Number: 1, Size: 2}, {Number: 2, Size: 2}, {Number: 3, Size: 2}, {Number: 1 << 40, Size: 1000}} {
		page := server.Page[Instance]{Data: []Instance{}, Page: w.Number, PageSize: w.Size, Total: len(all)}
		for n := (w.Number - 1) * w.Size; n < min(len(all), w.Number*w.Size); n++ {
			page.Data = append(page.Data, InstanceOf(s, all[n], now))
		}
		want, err := json.Marshal(page)
		if err != nil {
			t.Fatal(err)
		}
		h := newViewCache(nil)
		got := server.EncodePage(w, all, func(to []byte, i *fleet.Instance) []byte { return h.of(s, i, now).Append(to, now) })
		if string(got) != string(want) {
			t.Errorf("%+v:\ngot  %s\nwant %s", w, got, want)
		}
	}
}
