package provide

import (
	"context"

	"github.com/orreryhq/orrery/libs/dropin"
)

// MaxRunning is how many programs run at once.
const MaxRunning = maxRunning

// RunBy has programs run by do.
func (p *Providers) RunBy(do func(context.Context, dropin.Job) (string, error)) { p.run = do }
