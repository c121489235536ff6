package sampler

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/driver"
)

// unused are the figures of a run whose usage is unknown.
const unused = `"uptimeMs":null,"usedCpu":null,"usedDiskMb":null,"usedMemoryMb":null`

// watched are the instances of a test.
type watched struct {
	live     map[fleet.InstanceID]driver.Live
	measured map[fleet.InstanceID]client.Measured
	// uses is the usage of the servers' runs, and told the instances to which it was reported.
	uses map[int]reports.Usage
	told []string
}

func (w *watched) gauge() *Sampler {
	return New(Config{
		Live: func() map[fleet.InstanceID]driver.Live { return w.live },
		Measured: func(id fleet.InstanceID) (client.Measured, error) {
			if m, ok := w.measured[id]; ok {
				return m, nil
			}
			return client.Measured{}, errs.New(errs.NotFound, "it told none")
		},
		Usage: func(_ time.Time, servers map[fleet.InstanceID]int) map[fleet.InstanceID]reports.Usage {
			return map[fleet.InstanceID]reports.Usage{"aaaaaa": w.uses[servers["aaaaaa"]]}
		},
		Used: func(id fleet.InstanceID, server int, u reports.Usage) {
			w.told = append(w.told, fmt.Sprint(id, server, u))
		},
		CPU: func() float64 { return 0.25 }, Memory: func() int { return 1024 },
	})
}

func running(id fleet.InstanceID, r reports.InstanceReport) driver.Live {
	return driver.Live{Status: fleet.Status{Instance: id, State: fleet.Online}, Report: r}
}

// last returns the newest samples as JSON.
func last(t *testing.T, f series.Figures) string {
	t.Helper()
	out := map[string]*float64{}
	for name, values := range f.Series {
		out[name] = values[len(values)-1]
	}
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNodeAndInstancesAreSampled(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 7, 0, time.UTC)
	w := &watched{
		live: map[fleet.InstanceID]driver.Live{
			"aaaaaa": running("aaaaaa", reports.InstanceReport{Players: 3, PlayersKnown: true, TPS: 12}),
			"bbbbbb": running("bbbbbb", reports.InstanceReport{TPS: 18}),
			"cccccc": {Status: fleet.Status{Instance: "cccccc", State: fleet.Stopped}},
		},
		measured: map[fleet.InstanceID]client.Measured{
			"aaaaaa": {At: now, Figures: []byte(`{"tps1m":19.5,"msptAvg":40,"heapUsedMb":512}`)},
		},
	}
	g := w.gauge()
	window, err := series.ParseWindow("15m", "60")
	if err != nil {
		t.Fatal(err)
	}
	read := func(id fleet.InstanceID) string {
		t.Helper()
		f, err := g.Instance(id, now, window)
		if err != nil {
			t.Fatal(err)
		}
		return last(t, f)
	}
	g.sample(now)
	if got := last(t, g.Node(now, window)); got != `{"cpuUsage":null,"instanceCount":2,"usedMemoryMb":1024}` {
		t.Errorf("nobody knows of what time the first share of the processors is: %s", got)
	}
	if got := read("aaaaaa"); got != `{"heapUsedMb":512,"msptAvg":40,"playerCount":3,"tps1m":19.5,`+unused+`}` {
		t.Error(got)
	}
	if got := read("bbbbbb"); got != `{"heapUsedMb":null,"msptAvg":null,"playerCount":null,"tps1m":18,`+unused+`}` {
		t.Error(got)
	}
	if _, err := g.Instance("cccccc", now, window); !errs.Is(err, errs.NotFound) {
		t.Errorf("one that never ran: %v", err)
	}

	now = now.Add(10 * time.Minute) // its measurements are outdated
	w.live["bbbbbb"] = driver.Live{Status: fleet.Status{Instance: "bbbbbb", State: fleet.Stopped}}
	g.sample(now)
	if got := last(t, g.Node(now, window)); got != `{"cpuUsage":0.25,"instanceCount":1,"usedMemoryMb":1024}` {
		t.Error(got)
	}
	if got := read("aaaaaa"); got != `{"heapUsedMb":null,"msptAvg":null,"playerCount":3,"tps1m":12,`+unused+`}` {
		t.Error(got)
	}
	if got := read("bbbbbb"); got != `{"heapUsedMb":null,"msptAvg":null,"playerCount":null,"tps1m":null,`+unused+`}` {
		t.Errorf("one that stopped keeps its past, and gets no values: %s", got)
	}

	delete(w.live, "bbbbbb")
	g.sample(now.Add(series.Step))
	if _, err := g.Instance("bbbbbb", now, window); !errs.Is(err, errs.NotFound) {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestUsageIsReportedWhileRunning(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 7, 0, time.UTC)
	one := running("aaaaaa", reports.InstanceReport{Usage: reports.Usage{DiskBytes: 5 << 20, DiskKnown: true}})
	one.Status.PID, one.Status.StartedAt = 42, now.Add(-time.Minute)
	w := &watched{
		live: map[fleet.InstanceID]driver.Live{"aaaaaa": one, "bbbbbb": running("bbbbbb", reports.InstanceReport{})},
		uses: map[int]reports.Usage{42: {MemoryBytes: 3<<20 - 1, CPU: 150, CPUKnown: true}},
	}
	g := w.gauge()
	window, err := series.ParseWindow("15m", "60")
	if err != nil {
		t.Fatal(err)
	}
	read := func(id fleet.InstanceID) string {
		t.Helper()
		f, err := g.Instance(id, now, window)
		if err != nil {
			t.Fatal(err)
		}
		return last(t, f)
	}
	g.sample(now)
	const said = `"heapUsedMb":null,"msptAvg":null,"playerCount":null,"tps1m":null,`
	if got := read("aaaaaa"); got != `{`+said+`"uptimeMs":60000,"usedCpu":150,"usedDiskMb":5,"usedMemoryMb":3}` {
		t.Error(got)
	}
	if got := read("bbbbbb"); got != `{`+said+`"uptimeMs":null,"usedCpu":null,"usedDiskMb":null,"usedMemoryMb":null}` {
		t.Errorf("one whose process is not known: %s", got)
	}
	if want := []string{fmt.Sprint("aaaaaa", 42, w.uses[42])}; !slices.Equal(w.told, want) {
		t.Errorf("told %v, want %v", w.told, want)
	}
}

func TestUnreadableMetricsAreIgnored(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 7, 0, time.UTC)
	w := &watched{
		live:     map[fleet.InstanceID]driver.Live{"aaaaaa": running("aaaaaa", reports.InstanceReport{})},
		measured: map[fleet.InstanceID]client.Measured{"aaaaaa": {At: now, Figures: []byte(`{"msptAvg":40,"tps1m":"fast"}`)}},
	}
	g := w.gauge()
	window, err := series.ParseWindow("", "")
	if err != nil {
		t.Fatal(err)
	}
	g.sample(now)
	if f, err := g.Instance("aaaaaa", now, window); err != nil || last(t, f) != `{"heapUsedMb":null,"msptAvg":null,"playerCount":null,"tps1m":null,`+unused+`}` {
		t.Errorf("%v, %v", last(t, f), err)
	}
}
