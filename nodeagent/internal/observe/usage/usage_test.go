package usage

import "testing"

func TestPhysicalCoresCountsSharedCoresOnce(t *testing.T) {
	const two = "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n\n" +
		"processor\t: 2\nphysical id\t: 1\ncore id\t\t: 0\n"
	for info, want := range map[string]int{two: 2, "processor\t: 0\nBogoMIPS\t: 50\n": 0, "": 0} {
		if got := physicalCores(info); got != want {
			t.Errorf("%q: %d, want %d", info, got, want)
		}
	}
}
