package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/nodeagent/internal/health"
)

// hearing is what a run has said of itself, from its launch on. What it says may arrive
// before the launch is known to have succeeded: it is heard all the same.
type hearing struct {
	// pulse are its signs of life. It is made anew for each run.
	pulse *health.Pulse
	// since is when the run's launch began; what was said before is no sign of its life.
	since time.Time
	// launching is true while a process may be there that the status does not show yet.
	launching bool
	// sequence is the highest number of what it said, 0 for none.
	sequence int64
	// unkept is true when a number could not be kept, which was told.
	unkept bool
	// unready is why it is not ready; empty when nobody knows.
	unready string
	// measured is what it measured of itself.
	measured Measured
}

func newHearing(since time.Time, sequence int64) hearing {
	return hearing{pulse: health.NewPulse(), since: since, sequence: sequence}
}

// sequenceFile, in a run's directory, holds the highest number of what it said: a number
// that was used is refused by the next agent too. Like the journal it is not flushed: it
// must survive the agent, not the host.
const sequenceFile = "sequence"

func (i *Instance) sequencePath() string { return filepath.Join(i.kit.RunDir(i.id), sequenceFile) }

// keepSequence keeps a number for the next agent. One that cannot be kept is accepted all
// the same: a full disk must not make a server look dead. Under i.mu.
func (i *Instance) keepSequence(n int64) {
	err := writeSequence(i.sequencePath(), n)
	if err != nil && !i.unkept {
		i.log.Warn("the number of a heartbeat is not kept: if the agent is replaced, the next one takes it again", "error", err)
	}
	i.unkept = err != nil
}

// writeSequence writes a number over the one before, always as long: whoever reads
// meanwhile reads one of the two.
func writeSequence(path string, n int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%019d\n", n), 0)
	return errors.Join(err, f.Close())
}

// readSequence is the number that an agent before this one has kept; 0 for none.
func readSequence(runDir string) int64 {
	b, err := os.ReadFile(filepath.Join(runDir, sequenceFile))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return max(n, 0)
}

// forgetSequence forgets the numbers of earlier runs, before the next one begins. Under i.mu.
func (i *Instance) forgetSequence() {
	if err := os.Remove(i.sequencePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		i.log.Warn("the numbers of an earlier run's heartbeats are not forgotten", "error", err)
	}
}
