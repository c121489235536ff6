package plan

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// blameSlack is how much earlier than a status a crash's own record may be seen.
const blameSlack = 10 * time.Second

// blame says what the group's crashes after a time have in common. An only node is no
// suspect: everything crashes there, whoever is at fault.
func (p *pass) blame(after time.Time) fleet.Blame {
	if p.in.Crashes == nil {
		return fleet.Blame{}
	}
	var own, all []*fleet.Crash
	for c := range p.in.Crashes {
		if !c.At.After(after) {
			continue
		}
		all = append(all, c)
		if c.Group == p.group().Name && c.GroupRevision == p.group().Revision {
			own = append(own, c)
		}
	}
	b := fleet.BlameOf(own, all)
	if b.Suspect == fleet.SuspectNode && (p.in.Elsewhere == nil || !p.in.Elsewhere(b.Node)) {
		return fleet.Blame{}
	}
	return b
}

// tolerance is how many crashes within the window pause the group. While one node is
// the likely fault it is twice as many as else: by then the scheduler avoids that node.
func (p *pass) tolerance(b fleet.Blame) int {
	if b.Suspect == fleet.SuspectNode {
		return 2 * p.in.Limits.CrashLimit
	}
	return p.in.Limits.CrashLimit
}
