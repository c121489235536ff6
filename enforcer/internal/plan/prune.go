package plan

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Crashes decides which recorded crashes to remove: those that are too old, and of too
// many the oldest of the groups that have the most, so that one group that keeps
// crashing does not push out what is known of the others. wake is when the next one
// becomes too old; zero when none will.
func Crashes(recorded iter.Seq2[string, *fleet.Crash], l Limits, now time.Time) (remove []*fleet.Crash, wake time.Time) {
	byGroup := map[fleet.GroupName][]*fleet.Crash{}
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
	var rest []*fleet.Crash
	for _, all := range byGroup {
		newestFirst(all)
		kept := min(share, len(all))
		remove, rest = append(remove, all[kept:]...), append(rest, all[:kept]...)
	}
	if len(rest) > l.CrashRecords { // more groups than records
		newestFirst(rest)
		remove = append(remove, rest[l.CrashRecords:]...)
	}
	slices.SortFunc(remove, func(a, b *fleet.Crash) int { return strings.Compare(a.ID, b.ID) })
	return remove, wake
}

// shareOf is how many records each group may have at most so that all together have no
// more than limit; at least 1.
func shareOf(byGroup map[fleet.GroupName][]*fleet.Crash, limit int) int {
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

func newestFirst(all []*fleet.Crash) {
	slices.SortFunc(all, func(a, b *fleet.Crash) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(b.ID, a.ID)) })
}
