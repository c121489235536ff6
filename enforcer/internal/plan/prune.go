package plan

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// Crashes returns the recorded crashes to delete. Old ones are deleted. When there are too
// many, it deletes the oldest of the groups with the most, so that one crashing group does
// not displace the records of others. wake is when the next record becomes too old, or zero.
func Crashes(recorded iter.Seq2[string, *reports.Crash], l Limits, now time.Time) (remove []*reports.Crash, wake time.Time) {
	byGroup := map[fleet.GroupName][]*reports.Crash{}
	for _, c := range recorded {
		due := c.At.Add(l.CrashFor)
		if !due.After(now) {
			remove = append(remove, c)
			continue
		}
		if wake.IsZero() || due.Before(wake) {
			wake = due
		}
		byGroup[c.Group] = append(byGroup[c.Group], c)
	}
	share := shareOf(byGroup, l.CrashRecords)
	var rest []*reports.Crash
	for _, all := range byGroup {
		newestFirst(all)
		kept := min(share, len(all))
		remove, rest = append(remove, all[kept:]...), append(rest, all[:kept]...)
	}
	if len(rest) > l.CrashRecords { // more groups than records
		newestFirst(rest)
		remove = append(remove, rest[l.CrashRecords:]...)
	}
	slices.SortFunc(remove, func(a, b *reports.Crash) int { return strings.Compare(a.ID, b.ID) })
	return remove, wake
}

// shareOf returns the largest number of records per group that keeps the total within
// limit; at least 1.
func shareOf(byGroup map[fleet.GroupName][]*reports.Crash, limit int) int {
	for share := limit; share > 1; share-- {
		total := 0
		for _, all := range byGroup {
			total += min(share, len(all))
		}
		if total <= limit {
			return share
		}
	}
	return 1
}

func newestFirst(all []*reports.Crash) {
	slices.SortFunc(all, func(a, b *reports.Crash) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(b.ID, a.ID)) })
}
