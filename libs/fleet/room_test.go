package fleet

import (
	"encoding/json"
	"maps"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestOperatorSettingsOverrideNode(t *testing.T) {
	n := Node{Labels: map[string]string{"rack": "a"}, Room: NodeRoom{MaxInstances: 1}}
	if !maps.Equal(n.LabelsUnder(nil), n.Labels) || n.RoomUnder(nil) != n.Room {
		t.Error("without an operator's word the node's own does not count")
	}
	d := &NodeDesired{Cordoned: true}
	if !maps.Equal(n.LabelsUnder(d), n.Labels) || n.RoomUnder(d) != n.Room {
		t.Error("a cordon takes the node's own away")
	}
	d.Labels, d.Room = map[string]string{}, &NodeRoom{}
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var stored NodeDesired
	if err := json.Unmarshal(b, &stored); err != nil {
		t.Fatal(err)
	}
	if len(n.LabelsUnder(&stored)) != 0 || n.RoomUnder(&stored) != (NodeRoom{}) {
		t.Errorf("an operator's nothing does not count once it was stored: %s", b)
	}
}

func TestNodeRoomOf(t *testing.T) {
	for _, c := range []struct {
		rule     string
		room     NodeRoom
		capacity Resources
		want     Resources
		says     string
	}{
		{"all of it, when nothing is said", NodeRoom{}, Resources{10, 20, 30}, Resources{10, 20, 30}, ""},
		{"what is kept for the host is not there", NodeRoom{Reserved: Resources{1, 2, 3}}, Resources{10, 20, 30}, Resources{9, 18, 27}, ""},
		{"CPU counts as often as the factor says", NodeRoom{CPUFactor: 1.5, Reserved: Resources{CPU: 10}}, Resources{CPU: 100}, Resources{CPU: 140}, ""},
		{"nothing is less than nothing", NodeRoom{Reserved: Resources{11, 21, 31}}, Resources{10, 20, 30}, Resources{}, ""},
		{"negative memory", NodeRoom{}, Resources{-1, 20, 30}, Resources{0, 20, 30}, "memoryMb of -1"},
		{"CPU past all bounds", NodeRoom{CPUFactor: 100}, Resources{10, math.MaxInt, 30}, Resources{10, 0, 30}, "cpu of 9223372036854775807"},
		{"two parts, both told", NodeRoom{}, Resources{-1, 20, -3}, Resources{0, 20, 0}, "memoryMb of -1 and diskMb of -3"},
		{"a factor past all bounds is the largest", NodeRoom{CPUFactor: 1e300}, Resources{CPU: 1}, Resources{CPU: MaxCPUFactor}, ""},
		{"a negative reservation is none", NodeRoom{Reserved: Resources{-5, -5, -5}}, Resources{1, 1, 1}, Resources{1, 1, 1}, ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, err := c.room.Of(c.capacity)
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if (err != nil) != (c.says != "") || err != nil && (!errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), c.says)) {
				t.Errorf("says %v, want %q", err, c.says)
			}
		})
	}
}

func TestNodeRoomIsNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) Resources {
			return Resources{rapid.Int().Draw(t, label), rapid.Int().Draw(t, label), rapid.Int().Draw(t, label)}
		}
		r := NodeRoom{Reserved: draw("reserved"), CPUFactor: rapid.Float64().Draw(t, "factor")}
		if got, _ := r.Of(draw("capacity")); got.MemoryMiB < 0 || got.CPU < 0 || got.DiskMiB < 0 {
			t.Fatalf("%+v", got)
		}
	})
}
