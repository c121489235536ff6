package series

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
)

var began = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func windowOf(t testing.TB, window, buckets string) Window {
	t.Helper()
	w, err := ParseWindow(window, buckets)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// shown returns the values with -1 for unknown ones.
func shown(values []*float64) []float64 {
	out := make([]float64, len(values))
	for n, v := range values {
		out[n] = -1
		if v != nil {
			out[n] = *v
		}
	}
	return out
}

func TestBucketsContainMeans(t *testing.T) {
	r := New("players", "load")
	for n := range 120 { // half an hour
		load := math.NaN()
		if n >= 60 {
			load = 0.5
		}
		r.Add(began.Add(time.Duration(n)*Step+Step/2), float64(n/4), load)
	}
	got := r.Read(began.Add(30*time.Minute), windowOf(t, "1h", "60"))
	if got.WindowMillis != 3_600_000 || got.BucketMillis != 60_000 || got.Buckets != 60 || got.StartedAt != began.Add(-30*time.Minute).UnixMilli() ||
		got.Since == nil || *got.Since != began.Add(Step/2).UnixMilli() {
		t.Errorf("%+v", got)
	}
	players, load := shown(got.Series["players"]), shown(got.Series["load"])
	for n := range 60 {
		wantPlayers, wantLoad := -1.0, -1.0
		if n >= 30 {
			wantPlayers = float64(n - 30)
		}
		if n >= 45 {
			wantLoad = 0.5
		}
		if players[n] != wantPlayers || load[n] != wantLoad {
			t.Errorf("bucket %d: %v players, load %v; want %v and %v", n, players[n], load[n], wantPlayers, wantLoad)
		}
	}
}

func TestNarrowBucketsRepeatTheSample(t *testing.T) {
	r := New("players")
	for n := range 60 {
		r.Add(began.Add(time.Duration(n)*Step+Step/2), 7)
	}
	for b, v := range shown(r.Read(began.Add(15*time.Minute), windowOf(t, "15m", "360")).Series["players"]) {
		if v != 7 {
			t.Errorf("bucket %d: %v", b, v)
		}
	}
}

func TestRingKeepsOneDayInBoundedMemory(t *testing.T) {
	r := New("players", "load")
	const samples = 2 * 24 * 60 * 4
	for n := range samples {
		r.Add(began.Add(time.Duration(n)*Step+Step/2), float64(n), 1)
	}
	now := began.Add(samples * Step)
	for _, window := range []string{"15m", "1h", "6h", "24h"} {
		w := windowOf(t, window, "10")
		got := r.Read(now, w)
		width := float64(w.length/Step) / 10
		for b, v := range shown(got.Series["players"]) {
			middle := float64(samples) - float64(w.length/Step) + (float64(b)+0.5)*width
			if math.Abs(v-middle) > width/2+16 {
				t.Errorf("%s, bucket %d: %v, want about %v", window, b, v, middle)
			}
		}
		if day := now.Add(-24 * time.Hour); *got.Since < day.Add(-4*time.Minute).UnixMilli() || *got.Since > day.UnixMilli() {
			t.Errorf("%s: since %v", window, time.UnixMilli(*got.Since))
		}
	}
	size := 0
	for _, l := range r.levels {
		size += 4*cap(l.slots) + 4*cap(l.values)
	}
	if size > 24<<10 {
		t.Errorf("%d bytes are kept", size)
	}
}

func TestClockSetBackDiscardsHistory(t *testing.T) {
	r := New("players")
	r.Add(began, 1)
	back := began.Add(-time.Hour)
	r.Add(back, 2)
	got := r.Read(back.Add(time.Minute), windowOf(t, "15m", "10"))
	if v := shown(got.Series["players"]); v[9] != 2 || *got.Since != back.UnixMilli() {
		t.Errorf("%v since %v", v, *got.Since)
	}
}

func TestEmptyRingHasNoValues(t *testing.T) {
	b, err := json.Marshal(New("players").Read(began, windowOf(t, "15m", "10")))
	want := `{"windowMs":900000,"bucketWidthMs":90000,"buckets":10,"startedAtMs":1896090300000,"sinceMs":null,"series":{"players":[null,null,null,null,null,null,null,null,null,null]}}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v", b, err)
	}
	same, err := json.Marshal(Empty(began, windowOf(t, "15m", "10"), "players"))
	if err != nil || string(same) != want {
		t.Errorf("%s, %v", same, err)
	}
}

func TestParseWindow(t *testing.T) {
	for _, c := range []struct {
		window, buckets string
		query           string
	}{
		{"", "", "buckets=60&window=1h"}, {"15m", "1", "buckets=10&window=15m"}, {"24h", "9999", "buckets=360&window=24h"}, {"6h", "12", "buckets=12&window=6h"},
	} {
		if got := windowOf(t, c.window, c.buckets).Query().Encode(); got != c.query {
			t.Errorf("%q, %q: %s", c.window, c.buckets, got)
		}
	}
	for _, c := range [][3]string{{"2h", "", "window"}, {"1h0m0s", "", "window"}, {"1h", "many", "buckets"}, {"1h", "1e2", "buckets"}, {"1h", "99999999999999999999", "buckets"}} {
		if _, err := ParseWindow(c[0], c[1]); !errs.Is(err, errs.Malformed) || errs.FieldOf(err) != c[2] {
			t.Errorf("%q, %q: %v", c[0], c[1], err)
		}
	}
}

func TestEverySamplesOncePerStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		want := []time.Duration{0}
		for n := range 4 {
			want = append(want, Step/2+time.Duration(n)*Step) // it starts with a step
		}
		var got []time.Duration
		Every(ctx, func(at time.Time) {
			if got = append(got, at.Sub(began)); len(got) == len(want) {
				cancel()
			}
		})
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

func TestMeansAreWithinSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, at := New("x"), began
		least, most := math.Inf(1), math.Inf(-1)
		for range rapid.IntRange(0, 400).Draw(t, "samples") {
			at = at.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds")) * time.Second)
			v := float64(rapid.IntRange(-1000, 1000).Draw(t, "value"))
			least, most = min(least, v), max(most, v)
			r.Add(at, v)
		}
		w := Window{}
		var err error
		if w, err = ParseWindow(rapid.SampledFrom([]string{"15m", "1h", "6h", "24h"}).Draw(t, "window"), rapid.SampledFrom([]string{"10", "61", "360"}).Draw(t, "buckets")); err != nil {
			t.Fatal(err)
		}
		got := r.Read(at, w)
		for b, v := range got.Series["x"] {
			if v != nil && (*v < least-0.01 || *v > most+0.01) {
				t.Errorf("bucket %d: %v is not between %v and %v", b, *v, least, most)
			}
		}
		if got.Since != nil && got.Series["x"][w.buckets-1] == nil {
			t.Error("the last sample is in no bucket")
		}
	})
}
