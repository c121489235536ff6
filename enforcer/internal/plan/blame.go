package plan

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet/crashloop"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// blameSlack is by how much a crash record may be older than the status that reports the
// same crash.
const blameSlack = 10 * time.Second

// blame returns the likely cause of the group's crashes after a time: a node, a revision,
// or none. A node is not a suspect when it is the only one, because then everything crashes
// there.
func (p *pass) blame(after time.Time) crashloop.Blame {
	var own, all []*reports.Crash
	for c := range p.in.Crashes {
		if !c.At.After(after) {
			continue
		}
		all = append(all, c)
		if c.Group == p.group().Name && c.GroupRevision == p.group().Revision {
			own = append(own, c)
		}
	}
	b := reports.BlameOf(own, all)
	if b.Suspect == reports.SuspectNode && !p.in.Elsewhere(b.Node) {
		return crashloop.Blame{}
	}
	return b
}

// tolerance is how many crashes within the window pause the group. It doubles while one
// node is the likely cause, because by then the scheduler avoids that node.
func (p *pass) tolerance(b crashloop.Blame) int {
	if b.Suspect == reports.SuspectNode {
		return 2 * p.in.Limits.CrashLimit
	}
	return p.in.Limits.CrashLimit
}
