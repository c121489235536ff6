package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/health"
)

// selfReport holds what the current run has reported about itself. It begins with the launch,
// because a heartbeat may arrive before the launch is known to have succeeded.
type selfReport struct {
	// heartbeats counts the run's heartbeats. Each run gets a new one.
	heartbeats *health.Heartbeats
	// since is when the launch began. Earlier heartbeats are no sign of life.
	since time.Time
	// launching is true while a process may exist that the status does not show yet.
	launching bool
	// sequence is the highest sequence number received, or 0.
	sequence int64
	// sequenceUnsaved is set when a sequence number could not be stored, which was logged.
	sequenceUnsaved bool
	// unready is why the run is not ready; empty if unknown.
	unready string
	// measured holds the run's own metrics.
	measured client.Measured
}

func newSelfReport(since time.Time, sequence int64) selfReport {
	return selfReport{heartbeats: health.NewHeartbeats(), since: since, sequence: sequence}
}

// sequenceFile, in a run's directory, holds the highest sequence number received, so that the
// next agent rejects repeated numbers too. It is not flushed: it must survive the agent, not
// the host.
const sequenceFile = "sequence"

func (i *Instance) sequencePath() string { return filepath.Join(i.deps.RunDir(i.id), sequenceFile) }

// keepSequence stores a sequence number for the next agent. A failure is only logged: a full
// disk must not make a server look dead. i.mu is held.
func (i *Instance) keepSequence(n int64) {
	err := writeSequence(i.sequencePath(), n)
	if err != nil && !i.sequenceUnsaved {
		i.log.Warn("cannot store the sequence number of a heartbeat: the next agent would accept it again", "error", err)
	}
	i.sequenceUnsaved = err != nil
}

// writeSequence overwrites the stored number with one of the same length, so that a concurrent
// reader sees one of the two.
func writeSequence(path string, n int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%019d\n", n), 0)
	return errors.Join(err, f.Close())
}

// readSequence returns the number that an earlier agent stored, or 0.
func readSequence(runDir string) int64 {
	b, err := os.ReadFile(filepath.Join(runDir, sequenceFile))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return max(n, 0)
}

// forgetSequence removes the numbers of earlier runs before the next run begins. i.mu is held.
func (i *Instance) forgetSequence() {
	if err := os.Remove(i.sequencePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		i.log.Warn("cannot remove the sequence numbers of an earlier run", "error", err)
	}
}
