package fleet_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/score"
)

func anyPlacement(t *rapid.T) fleet.Placement {
	return fleet.Placement{
		Instance: fleet.InstanceID(rapid.StringMatching(`[a-z0-9]{6}`).Draw(t, "id")), Name: rapid.String().Draw(t, "name"),
		Group: fleet.GroupName(rapid.StringMatching(`[a-zA-Z0-9<&_.-]{0,9}`).Draw(t, "group")), Node: "n1",
		Generation: rapid.Int64().Draw(t, "generation"), Plan: rapid.StringMatching(`[0-9a-f]{64}`).Draw(t, "plan"),
		DataUUID:  rapid.StringMatching(`[a-z0-9-]{0,5}`).Draw(t, "data"),
		Resources: fleet.Resources{MemoryMiB: rapid.IntRange(-1, 3).Draw(t, "memory"), CPU: rapid.IntRange(0, 3).Draw(t, "cpu"), DiskMiB: rapid.IntRange(0, 2).Draw(t, "disk")},
		Port:      rapid.IntRange(-1, 70_000).Draw(t, "port"), Epoch: rapid.Int64().Draw(t, "epoch"), Alone: rapid.Bool().Draw(t, "alone"), FromRevision: rapid.Int64Range(-1, 2).Draw(t, "from"),
		Ports:    rapid.MapOf(rapid.StringMatching(`[a-z"é]{0,3}`), rapid.Int()).Draw(t, "ports"),
		Values:   rapid.MapOf(rapid.StringMatching(`[A-Z]{1,3}`), rapid.String()).Draw(t, "values"),
		Score:    anyScores(t),
		PlacedAt: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC(),
	}
}

func anyScores(t *rapid.T) score.Breakdown {
	parts := rapid.MapOf(rapid.StringMatching(`[a-z<]{0,5}`), rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1))).Draw(t, "score")
	if len(parts) == 0 {
		return ""
	}
	b, err := json.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	return score.Breakdown(b)
}

func TestPlacementRecordMatchesEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlacement(t)
		want, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var read, reference fleet.Placement
		if err := json.Unmarshal(want, &reference); err != nil {
			t.Fatal(err)
		}
		if parsed := read.ParseRecord(want); parsed && !cmp.Equal(read, reference) {
			t.Fatalf("read %s", cmp.Diff(reference, read))
		}
	})
}

// A field that ParseRecord does not know would keep it from reading any placement.
func TestParseRecordReadsUsualPlacement(t *testing.T) {
	p := fleet.Placement{
		Instance: "abc123", Name: "lobby-1", Group: "lobby", Node: "node-1", Generation: 1, Plan: "f00d", Port: 30_000,
		Resources: fleet.Resources{MemoryMiB: 512}, Epoch: 7, PlacedAt: time.Now().UTC(), FromRevision: 9,
		Score: `{"memory":0.25,"own":0.05,"total":1}`,
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var read fleet.Placement
	if !read.ParseRecord(b) || !cmp.Equal(read, p) {
		t.Errorf("read %+v from %s", read, b)
	}
}

func FuzzRecordReaderMatchesEncodingJSON(f *testing.F) {
	f.Add([]byte(`{"instance":"abc123","name":"l-1","group":"l","node":"n","generation":1,"plan":"f","resources":{"memoryMiB":5},"port":1,"epoch":3,"placedAt":"2026-01-02T03:04:05.6Z","score":{"a":0.5}}`))
	f.Add([]byte(`{"instance":"abc123","name":"l-1","group":"l","node":"n","generation":1,"plan":"f","resources":{},"port":1,"epoch":3,"placedAt":"2026-01-02T03:04:05.6Z","score":{"a":-0.0,"b":10}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, wantP fleet.Placement
		if p.ParseRecord(b) {
			if err := json.Unmarshal(b, &wantP); err != nil || !cmp.Equal(p, wantP) {
				t.Errorf("placement: %v %s", err, cmp.Diff(wantP, p))
			}
		}
	})
}

func TestScoresParts(t *testing.T) {
	var p fleet.Placement
	if err := json.Unmarshal([]byte(`{"score": { "total" : 1.5, "cpu": -0.25 } }`), &p); err != nil {
		t.Fatal(err)
	}
	if want := map[string]float64{"total": 1.5, "cpu": -0.25}; !cmp.Equal(p.Score.Parts(), want) {
		t.Errorf("%v", p.Score.Parts())
	}
	if (fleet.Placement{}).Score.Parts() != nil {
		t.Error("none are some")
	}
	for _, bad := range []string{`{"score":[]}`, `{"score":{"a":"b"}}`, `{"score":7}`} {
		if err := json.Unmarshal([]byte(bad), &p); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
