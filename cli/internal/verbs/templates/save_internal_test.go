package templates

import "testing"

func TestNothingToSave(t *testing.T) {
	for unchanged, want := range map[int64]string{
		0: "nothing would change",
		1: "nothing would change: 1 file has the content of the template",
		2: "nothing would change: 2 files have the content of the template",
	} {
		if got := nothingToSave(unchanged); got != want {
			t.Errorf("%d: %q, want %q", unchanged, got, want)
		}
	}
}
