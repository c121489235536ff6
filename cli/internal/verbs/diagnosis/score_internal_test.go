package diagnosis

import (
	"testing"
)

func TestScoresNameTheLargestPartFirst(t *testing.T) {
	got := score(map[string]float64{"cpu": 0.1, "memory": 0.4, "ports": 0.1, "total": 0.6})
	if want := "0.600 = memory 0.400 + cpu 0.100 + ports 0.100"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
