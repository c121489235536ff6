package driver

import (
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// MaxFigures bounds the metrics that are kept of an instance, in bytes of JSON.
const MaxFigures = 64 << 10

// Measured returns the metrics that the current run last reported. NotFound if it reported none.
func (i *Instance) Measured() (client.Measured, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.measured.At.IsZero() || !i.live.Status.State.Running() {
		return client.Measured{}, errs.New(errs.NotFound, "the instance has reported no metrics in its current run")
	}
	return i.measured, nil
}
