package provider

import (
	"context"

	"github.com/orreryhq/orrery/libs/dropin"
)

// MaxRunning is the number of concurrent programs.
const MaxRunning = maxRunning

// SetRun replaces the function that runs programs.
func (p *Providers) SetRun(do func(context.Context, dropin.Job) (string, error)) { p.run = do }
