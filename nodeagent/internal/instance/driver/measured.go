package driver

import (
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// MaxFigures bounds the metrics that are kept of an instance, in bytes of JSON.
const MaxFigures = 64 << 10

// Measured holds the metrics that an instance last reported about itself.
type Measured struct {
	// At is when it reported them; zero if it never did.
	At time.Time
	// Proxy is true if it reported them as a proxy.
	Proxy bool
	// Figures is the JSON object as the instance sent it.
	Figures json.RawMessage
}

// Measured returns the metrics that the current run last reported. NotFound if it reported none.
func (i *Instance) Measured() (Measured, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.measured.At.IsZero() || !i.live.Status.State.Running() {
		return Measured{}, errs.New(errs.NotFound, "the instance has reported no metrics in its current run")
	}
	return i.measured, nil
}
