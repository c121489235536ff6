package supervise

import (
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// MaxFigures is the size of the largest figures that are kept of an instance, in bytes of JSON.
const MaxFigures = 64 << 10

// Measured is what an instance last measured of itself.
type Measured struct {
	// At is when it told that; zero when it never did.
	At time.Time
	// Proxy is true when it told it as a proxy.
	Proxy bool
	// Figures are a JSON object, as whoever took them made it.
	Figures json.RawMessage
}

// Measured is what the present run last measured of itself. NotFound when it never told.
func (i *Instance) Measured() (Measured, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.measured.At.IsZero() || !i.live.Status.State.Running() {
		return Measured{}, errs.New(errs.NotFound, "the instance has told no metrics in its present run")
	}
	return i.measured, nil
}
