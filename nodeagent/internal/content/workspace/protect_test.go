package workspace

import "testing"

func TestProtects(t *testing.T) {
	for path, want := range map[string]bool{"world": true, "world/level.dat": true, "worlds": false, "ops.json": true, "deep/ops.json": false} {
		if got := protects([]string{"world", "*.json"}, path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
