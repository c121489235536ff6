package fleet_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

func TestAPartOfTheFiguresIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(1, 1<<42).Draw(t, "at")).UTC()
		p := fleet.ReportPart{At: at, Instances: map[fleet.InstanceID]fleet.InstanceReport{}}
		for range rapid.IntRange(0, 5).Draw(t, "instances") {
			r := fleet.InstanceReport{
				Players: rapid.IntRange(0, 500).Draw(t, "players"), MaxPlayers: rapid.IntRange(0, 500).Draw(t, "most"),
				PlayersKnown: rapid.Bool().Draw(t, "known"), TPS: float64(rapid.IntRange(0, 400).Draw(t, "tps")) / 10,
			}
			if ago := rapid.IntRange(-1, 1000).Draw(t, "ago"); ago >= 0 {
				r.HeartbeatAt = at.Add(-time.Duration(ago) * time.Second)
			}
			r.Usage.MemoryBytes = rapid.Int64Range(0, 1<<20).Draw(t, "memory") << 20
			if r.Usage.CPUKnown = rapid.Bool().Draw(t, "cpuKnown"); r.Usage.CPUKnown {
				r.Usage.CPU = float64(rapid.IntRange(0, 64_000).Draw(t, "cpu")) / 10
			}
			if r.Usage.DiskKnown = rapid.Bool().Draw(t, "diskKnown"); r.Usage.DiskKnown {
				r.Usage.DiskBytes = rapid.Int64Range(0, 1<<20).Draw(t, "disk") << 20
			}
			p.Instances[fleet.InstanceID(rapid.StringMatching("[a-z0-9]{6}").Draw(t, "id"))] = r
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got fleet.ReportPart
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%s is read as %+v, %v; want %+v", b, got, err, p)
		}
	})
}

func TestUsageIsShownInMiBRoundedUpAndNotAtAllWhereItIsNotKnown(t *testing.T) {
	known := fleet.Usage{MemoryBytes: 1, CPUKnown: true, DiskBytes: 1<<20 + 1, DiskKnown: true}
	if m, c, d := known.UsedMemory(), known.UsedCPU(), known.UsedDisk(); m == nil || *m != 1 || c == nil || *c != 0 || d == nil || *d != 2 {
		t.Errorf("memory %v, CPU %v, disk %v", m, c, d)
	}
	var unknown fleet.Usage
	if m, c, d := unknown.UsedMemory(), unknown.UsedCPU(), unknown.UsedDisk(); m != nil || c != nil || d != nil {
		t.Errorf("nothing is known: memory %v, CPU %v, disk %v", m, c, d)
	}
	if d := (fleet.Usage{DiskKnown: true}).UsedDisk(); d == nil || *d != 0 {
		t.Errorf("an empty directory: %v", d)
	}
}

func TestAPartOfThePlayersIsReadAsItWasWrittenAlsoByOlderAgents(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	players := []fleet.Presence{
		{Player: "069a79f4-44e9-4726-a5be-fca90e38aaf5", Name: "Steve", By: "aaaaaa", Since: at, At: at.Add(time.Minute), Said: 7},
		{Player: "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6", Name: "Alex", By: "pppppp", Proxy: true, Since: at, At: at},
		{Player: "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6", Name: "Alex", By: "pppppq", Proxy: true, On: "aaaaaa", Group: "lobby", Edition: "JAVA", Since: at, At: at},
		{Player: "61699b2e-d327-4a01-9f1e-0ea8c3f06bc6", Name: "Alex", By: "pppppr", Group: "lobby", Since: at, At: at},
	}
	b, err := json.Marshal(fleet.PresencePart{Part: 5, Players: players})
	if err != nil {
		t.Fatal(err)
	}
	older, err := json.Marshal(map[string]any{"node": "n1", "part": 5, "players": players})
	if err != nil {
		t.Fatal(err)
	}
	if 2*len(b) > len(older) {
		t.Errorf("%d bytes, of %d before: %s", len(b), len(older), b)
	}
	for _, text := range [][]byte{b, older} {
		var got fleet.PresencePart
		if err := json.Unmarshal(text, &got); err != nil || got.Part != 5 || !reflect.DeepEqual(got.Players, players) {
			t.Errorf("%s is read as %+v, %v", text, got, err)
		}
	}
}

func FuzzPresencePart(f *testing.F) {
	f.Add([]byte(`{"part":5,"told":[["Bpp59ETpRyalvvypDjiq9Q","Steve","aaaaaa",1767323045678901,60000000,7]]}`))
	f.Add([]byte(`{"told":[[]]}`))
	f.Add([]byte(`{"players":[{"uuid":"069a79f4-44e9-4726-a5be-fca90e38aaf5","name":"x","by":"aaaaaa"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p fleet.PresencePart
		if json.Unmarshal(text, &p) != nil {
			return
		}
		b, err := json.Marshal(p)
		if err != nil {
			return // older records hold what was told, which is no UUID in a damaged one
		}
		var again fleet.PresencePart
		if err := json.Unmarshal(b, &again); err != nil || len(again.Players) != len(p.Players) {
			t.Errorf("%s becomes %s: %v", text, b, err)
		}
	})
}
