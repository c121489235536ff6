package place

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestTheTextOfAScoreIsItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Score
		for part := range partCount {
			if rapid.Bool().Draw(t, "counts") {
				s.set(part, rapid.Int64Range(-2*unit, 2*unit).Draw(t, "value"))
			}
		}
		want, err := json.Marshal(s.Parts())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Text(); string(got) != string(want) {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}
