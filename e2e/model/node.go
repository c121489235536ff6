package model

import "cmp"

// node emits the steps of a machine and its agent.
func (x *stepper) node(n int) {
	if !x.m.steady(n) {
		x.session(n)
	}
	for i := range x.m.cfg.Instances {
		x.process(n, i)
		x.agent(n, i)
		x.reports(n, i)
	}
}

// session emits the steps of the node's session: it is opened or taken over, renewed,
// passes its deadline, or expires.
func (x *stepper) session(n int) {
	h, key, name := &x.s.host[n], x.s.keys.session[n], nodeName(n)
	joined := h.session != 0 && h.session == key
	switch {
	case joined:
	case key != 0:
		x.step(func(s *State) {
			s.disappear(n)
			s.host[n].leave()
		}, say("the agent of %v revokes its predecessor's session", name))
	default:
		x.step(func(s *State) {
			at := s.next()
			s.keys.session[n], s.keys.joined[n], s.over[n] = at, s.nextJoin(), false
			h := &s.host[n]
			h.leave()
			h.session, h.spent = at, false
		}, say("the agent of %v opens a session", name))
	}
	if h.session != 0 {
		x.stepFault(true, func(s *State) { s.host[n].leave() }, say("the agent of %v is killed and starts again with empty memory", name))
	}
	if h.session != 0 && (h.session != key || h.spent) {
		x.step(func(s *State) { s.host[n].session = 0 }, say("the agent of %v notices that its session is over", name))
	}
	if joined && h.spent {
		x.step(func(s *State) { s.host[n].spent = false }, say("the agent of %v renews its session at the last moment", name))
	}
	if key != 0 && h.spent {
		x.stepFault(joined, func(s *State) { s.disappear(n) }, say("the session of %v expires", name))
	}
	if key != 0 && !h.spent {
		x.stepFault(true, func(s *State) { s.disappear(n) }, say("the session of %v ends before its deadline", name))
	}
	if joined && (!h.runsAny() && !h.startsAny() || !x.m.cfg.keeps(ReleaseEmpty)) {
		x.stepFault(true, func(s *State) {
			s.disappear(n)
			s.keys.joined[n], s.over[n] = s.nextJoin(), true
			s.host[n].leave()
		}, say("the agent of %v closes its session and releases what it had", name))
	}
	if key == 0 && !x.s.over[n] && !h.diesAny() && (h.spent || !x.m.cfg.keeps(AgainTTL)) {
		x.step(func(s *State) { s.over[n] = true }, say("the wait since the session of %v disappeared is over", name))
	}
	if !h.spent && (key != 0 || h.runsAny() || !x.s.over[n]) {
		x.deadline(n, !joined)
	}
}

// deadline lets the session pass its deadline without renewal. For an agent that has
// joined, this is a fault.
func (x *stepper) deadline(n int, expected bool) {
	name := nodeName(n)
	spend := func(s *State, kill bool) {
		h := &s.host[n]
		h.spent = true
		for i := range h.runs {
			h.runs[i].dying = h.runs[i].dying || kill && h.runs[i].lives != 0
		}
	}
	if x.m.cfg.keeps(Deadline) && x.s.host[n].runsAny() {
		x.stepFault(!expected, func(s *State) { spend(s, true) }, say("the deadline of %v passes unrenewed: what is exclusive there is killed", name))
		if x.m.cfg.keeps(Guard) {
			return
		}
	}
	if x.s.host[n].runsAny() {
		x.stepFault(!expected, func(s *State) { spend(s, false) }, say("the deadline of %v passes unrenewed while its agent is dead or paused", name))
		return
	}
	x.stepFault(!expected, func(s *State) { spend(s, false) }, say("the deadline of %v passes unrenewed", name))
}

// leave clears all that an agent knew.
func (h *host) leave() {
	h.session = 0
	for i := range h.runs {
		r := &h.runs[i]
		r.claimed, r.starting, r.startedBy = false, false, 0
		r.read, r.readRev, r.told = false, 0, silent
	}
}

// disappear deletes a node's session key.
func (s *State) disappear(n int) { s.keys.session[n], s.over[n] = 0, false }

func (h *host) runsAny() bool   { return h.any(func(r *run) bool { return r.lives != 0 }) }
func (h *host) diesAny() bool   { return h.any(func(r *run) bool { return r.dying }) }
func (h *host) startsAny() bool { return h.any(func(r *run) bool { return r.starting }) }

func (h *host) any(is func(*run) bool) bool {
	for i := range h.runs {
		if is(&h.runs[i]) {
			return true
		}
	}
	return false
}

// process emits the steps of a process: it dies after a kill, and may end by itself.
func (x *stepper) process(n, i int) {
	r := &x.s.host[n].runs[i]
	if r.lives == 0 {
		return
	}
	gone := func(s *State) { s.host[n].runs[i].lives, s.host[n].runs[i].dying = 0, false }
	if r.dying {
		x.step(gone, say("the killed process of %v on %v is gone", instanceName(i), nodeName(n)))
		return
	}
	if x.m.steady(n) {
		return
	}
	x.stepFault(true, gone, say("the process of %v on %v ends by itself", instanceName(i), nodeName(n)))
}

// agent emits the steps from a placement to a process.
func (x *stepper) agent(n, i int) {
	h, p := &x.s.host[n], x.s.keys.placement[n][i]
	r := &h.runs[i]
	node, name := nodeName(n), instanceName(i)
	switch {
	case p.gen > r.begun && r.lives != 0 && !r.dying:
		x.step(func(s *State) { s.host[n].runs[i].halt() }, say("the agent of %v sees a later generation of %v and stops the earlier one", node, name))
	case p.gen > r.begun && r.lives == 0:
		x.step(func(s *State) {
			r := &s.host[n].runs[i]
			*r = run{begun: p.gen, placed: p.mod, sent: r.sent}
		}, say("the agent of %v takes up %v of %v", node, p.gen, name))
	case p.gen == r.begun && p.gen != 0 && !r.ended && !r.claimed && h.session != 0 && !x.m.cfg.keeps(StartClaimed) && x.m.cfg.keeps(StartSeen):
		x.step(func(s *State) { s.host[n].runs[i].claimed = true }, say("the agent of %v sees that %v of %v is still placed there", node, p.gen, name))
	}
	if r.begun == 0 || r.ended || r.lives != 0 {
		return
	}
	if !r.starting {
		if h.session != 0 && (r.claimed || !x.m.cfg.keeps(StartClaimed) && !x.m.cfg.keeps(StartSeen)) {
			x.step(func(s *State) {
				h := &s.host[n]
				h.runs[i].starting, h.runs[i].startedBy = true, h.session
			}, say("the agent of %v decides to start %v of %v", node, r.begun, name))
		}
		x.stepFault(true, func(s *State) { s.host[n].runs[i].halt() }, say("the agent of %v gives %v of %v up", node, r.begun, name))
		return
	}
	if x.m.cfg.keeps(StartChecked) && (r.startedBy == 0 || r.startedBy != h.session || h.spent) {
		x.step(func(s *State) { s.host[n].runs[i].starting, s.host[n].runs[i].startedBy = false, 0 }, say("the start of %v of %v on %v is refused: its deadline has passed", r.begun, name, node))
		return
	}
	x.step(func(s *State) {
		r := &s.host[n].runs[i]
		r.starting, r.startedBy, r.lives = false, 0, r.begun
	}, say("%v of %v runs on %v", r.begun, name, node))
}

// halt ends a generation.
func (r *run) halt() {
	r.ended, r.starting, r.startedBy = true, false, 0
	r.dying = r.lives != 0
}

// says returns what an agent has to report about an instance.
func (r *run) says() state {
	switch {
	case r.ended && r.lives == 0:
		return ended
	case r.lives != 0 && !r.dying && !r.ended:
		return online
	case r.begun != 0 && r.lives == 0:
		return preparing
	}
	return silent
}

// reports emits the steps from the actual state to a status record.
func (x *stepper) reports(n, i int) {
	h := &x.s.host[n]
	r := &h.runs[i]
	if r.sent.is != silent {
		x.late(n, i)
	}
	want := r.says()
	switch {
	case h.session == 0 || want == silent:
	case !r.read:
		x.step(func(s *State) { s.readStatus(n, i) }, say("the agent of %v reads the status of %v", nodeName(n), instanceName(i)))
	case r.told != want || want == preparing && !r.claimed && x.m.cfg.keeps(StartClaimed):
		t := report{want, r.begun, h.session, r.readRev, r.placed}
		if x.m.accepts(x.s, n, i, &t) {
			x.report(n, i, t)
		} else {
			x.step(func(s *State) { s.host[n].runs[i].read = false }, say("a status of %v from %v is refused: it will be read again", instanceName(i), nodeName(n)))
		}
		if x.m.cfg.LostAnswers && r.sent.is == silent {
			x.stepFault(true, func(s *State) {
				r := &s.host[n].runs[i]
				r.sent, r.read = t, false
			}, say("the agent of %v reports %v for %v and gets no answer", nodeName(n), want, instanceName(i)))
		}
	}
}

// readStatus records a status record's revision, and whether the instance continued without
// the agent.
func (s *State) readStatus(n, i int) {
	st, r := s.keys.status[i], &s.host[n].runs[i]
	r.read, r.readRev, r.told = true, st.mod, silent
	switch {
	case st.gen > r.begun:
		r.halt()
		r.told = ended // no longer of interest
	case st.gen == r.begun:
		r.told = st.is
		if st.is == ended {
			r.halt()
		}
	}
}

func (m *Model) accepts(s *State, n, i int, t *report) bool {
	claim := t.is == preparing && m.cfg.keeps(StartClaimed|ClaimPlaced)
	return !(claim && (t.placed == 0 || s.keys.placement[n][i].mod != t.placed)) &&
		!(m.cfg.keeps(StatusFence) && s.keys.session[n] != t.fence) &&
		!(m.cfg.keeps(StatusUnchanged) && s.keys.status[i].mod != t.compare)
}

// write performs a report and names the rule it breaks, if any.
func (m *Model) write(s *State, n, i int, t report) (broken string) {
	if s.keys.session[n] != t.fence && !m.cfg.HarmOnly {
		broken = OnlySessionsReport
	}
	broken = cmp.Or(broken, badStatus(s.keys.status[i], t.gen, t.is))
	s.keys.status[i] = status{mod: s.next(), gen: t.gen, is: t.is}
	return broken
}

func (x *stepper) report(n, i int, t report) {
	to := *x.s
	broken := x.m.write(&to, n, i, t)
	r := &to.host[n].runs[i]
	r.readRev, r.told = to.keys.status[i].mod, t.is
	r.claimed = r.claimed || t.is == preparing && x.m.cfg.keeps(StartClaimed)
	x.emit(Step[State]{To: to, Says: say("the agent of %v reports %v for %v", nodeName(n), t.is, instanceName(i)), Broken: broken})
}

// late lets a status with a lost answer arrive after all, or get lost.
func (x *stepper) late(n, i int) {
	t := x.s.host[n].runs[i].sent
	if x.m.accepts(x.s, n, i, &t) {
		to := *x.s
		to.host[n].runs[i].sent = report{}
		broken := x.m.write(&to, n, i, t)
		x.emit(Step[State]{To: to, Says: say("%v for %v, sent by %v, arrives late", t.is, instanceName(i), nodeName(n)), Broken: broken})
	}
	x.step(func(s *State) { s.host[n].runs[i].sent = report{} }, say("the status sent by %v is lost for good", nodeName(n)))
}

// forgetHost drops a session that is over, a status that can never be accepted, and
// knowledge about a changed record.
func (m *Model) forgetHost(s *State, n int) {
	h := &s.host[n]
	if m.cfg.keeps(StatusFence|StartChecked) && h.session != 0 && h.session != s.keys.session[n] && h.spent {
		h.leave()
	}
	if s.keys.session[n] == 0 && h.session == 0 && !h.runsAny() { // its deadline ends nothing
		h.spent = true
	}
	for i := range h.runs {
		r := &h.runs[i]
		if m.cfg.keeps(StatusFence) && h.session != s.keys.session[n] { // it can report nothing
			r.read, r.readRev, r.told = false, 0, silent
		}
		if m.cfg.keeps(StatusFence) && r.sent.fence != s.keys.session[n] ||
			m.cfg.keeps(StatusUnchanged) && r.sent.compare != 0 && r.sent.compare != s.keys.status[i].mod {
			r.sent = report{}
		}
		if r.placed != s.keys.placement[n][i].mod {
			r.placed = 0
		}
		if r.says() == silent || m.cfg.keeps(StatusUnchanged) && r.told != r.says() && r.readRev != s.keys.status[i].mod {
			r.read, r.readRev, r.told = false, 0, silent
		}
	}
}
