package deployment

import (
	"cmp"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Options say how a deployment replaces instances.
type Options struct {
	// BatchSize is how many instances are replaced at the same time.
	BatchSize int `json:"batchSize"`
	// With a MaxSurge above 0 each replacement starts first, and at most MaxSurge instances run in
	// addition. With a MaxUnavailable above 0 instances stop first and start again in their place,
	// and at most MaxUnavailable of them are not ready. Exactly one is above 0.
	MaxSurge       int `json:"maxSurge"`
	MaxUnavailable int `json:"maxUnavailable"`
	// CanaryInstances or CanaryPercent is the size of the first wave of a canary deployment.
	CanaryInstances int `json:"canaryInstances,omitempty"`
	CanaryPercent   int `json:"canaryPercent,omitempty"`
	// With HealthGate an instance counts as ready once it is healthy: it has been ONLINE for
	// MinHealthySeconds, and reports at least MinHealthyTPS if it reports any. The deployment fails
	// if a new instance crashes in a way in which the earlier ones did not.
	HealthGate        bool    `json:"healthGate,omitempty"`
	MinHealthySeconds int     `json:"minHealthySeconds,omitempty"`
	MinHealthyTPS     float64 `json:"minHealthyTps,omitempty"`
	// PromotionTimeoutSeconds bounds the time from ready to healthy.
	PromotionTimeoutSeconds int `json:"promotionTimeoutSeconds,omitempty"`
	// AutoRollback requests a rollback when the deployment fails.
	AutoRollback bool `json:"autoRollback,omitempty"`
	// ReplacementTimeoutSeconds bounds the time until a replacement is ready.
	ReplacementTimeoutSeconds int `json:"replacementTimeoutSeconds"`
	// DeadlineSeconds is when the players of an instance that retires are asked to move. It is
	// stopped GraceSeconds later, with those who are still there.
	DeadlineSeconds int `json:"deadlineSeconds"`
	GraceSeconds    int `json:"graceSeconds"`
}

// Default values and bounds.
const (
	defaultBatch = 1
	// MaxBatch bounds BatchSize.
	MaxBatch = 1000
	// MaxBlueGreen is how many instances a BLUE_GREEN deployment may replace, because all of them run
	// twice.
	MaxBlueGreen = 100
	// MaxSeconds bounds every duration.
	MaxSeconds          = 24 * 60 * 60
	defaultDeadline     = 5 * 60
	defaultGrace        = 30
	defaultPromotion    = 5 * 60
	defaultReplacement  = 10 * 60
	replacementSlack    = 60 // for the stop, the placement and the directory
	canaryHealthy       = 30
	canaryTPS           = 18
	hundred             = 100
	maxTPS              = 1000
	defaultCanary       = 1
	minReplacementLimit = 1
)

// Requested are the options of a request; nil selects the default.
type Requested struct {
	BatchSize, MaxSurge, MaxUnavailable, CanaryInstances, CanaryPercent                                  *int
	HealthGate, AutoRollback                                                                             *bool
	MinHealthySeconds, PromotionTimeoutSeconds, ReplacementTimeoutSeconds, DeadlineSeconds, GraceSeconds *int
	MinHealthyTPS                                                                                        *float64
}

// Complete returns the options of a deployment of a group, and everything that is wrong with the
// request as Invalid errors that name the field.
func (r Requested) Complete(s *fleet.GroupSpec, strategy Strategy) (Options, []error) {
	var p validate.Problems
	p.Check(strategy == Rolling || strategy.Gated(), "strategy", "must be %s, not %q", Strategies, validate.Clip(string(strategy)))
	p.Check(!strategy.Gated() || s.Scaling.Mode != fleet.ScalingManual, "strategy", "must not be %s for a group with scalingMode MANUAL, because the enforcer does not heal its instances: use ROLLING", strategy)
	gated := strategy.Gated()
	o := Options{
		BatchSize: value(r.BatchSize, defaultBatch), CanaryInstances: value(r.CanaryInstances, 0), CanaryPercent: value(r.CanaryPercent, 0),
		HealthGate: value(r.HealthGate, gated), AutoRollback: value(r.AutoRollback, gated),
		PromotionTimeoutSeconds: value(r.PromotionTimeoutSeconds, defaultPromotion),
		DeadlineSeconds:         value(r.DeadlineSeconds, defaultDeadline), GraceSeconds: value(r.GraceSeconds, defaultGrace),
		ReplacementTimeoutSeconds: value(r.ReplacementTimeoutSeconds, replacementTimeout(s)),
	}
	if o.HealthGate {
		o.MinHealthySeconds, o.MinHealthyTPS = value(r.MinHealthySeconds, canaryHealthy), value(r.MinHealthyTPS, canaryTPS)
	} else {
		o.MinHealthySeconds, o.MinHealthyTPS = value(r.MinHealthySeconds, 0), value(r.MinHealthyTPS, 0)
		p.Check(o.MinHealthySeconds == 0, "minHealthySeconds", "needs healthGateEnabled")
		p.Check(o.MinHealthyTPS == 0, "minHealthyTps", "needs healthGateEnabled")
	}
	if strategy == BlueGreen {
		o.blueGreen(&p, r, s)
	} else {
		o.order(&p, r, s)
	}
	o.canary(&p, strategy == Canary)
	p.Check(o.BatchSize >= 1 && o.BatchSize <= MaxBatch, "batchSize", "must be between 1 and %d, is %d", MaxBatch, o.BatchSize)
	seconds := func(name string, n, least int) {
		p.Check(n >= least && n <= MaxSeconds, name, "must be between %d and %d, is %d", least, MaxSeconds, n)
	}
	seconds("minHealthySeconds", o.MinHealthySeconds, 0)
	seconds("promotionTimeoutSeconds", o.PromotionTimeoutSeconds, 1)
	seconds("replacementTimeoutSeconds", o.ReplacementTimeoutSeconds, minReplacementLimit)
	seconds("deadlineSeconds", o.DeadlineSeconds, 0)
	seconds("graceSeconds", o.GraceSeconds, 0)
	p.Check(o.MinHealthyTPS >= 0 && o.MinHealthyTPS <= maxTPS, "minHealthyTps", "must be between 0 and %d, is %v", maxTPS, o.MinHealthyTPS)
	return o, p.List
}

// order sets and checks whether instances start or stop first.
func (o *Options) order(p *validate.Problems, r Requested, s *fleet.GroupSpec) {
	switch {
	case s.Static.Enabled:
		p.Check(value(r.MaxSurge, 0) == 0, "maxSurge", "must be 0 for a static group, because two instances cannot use the same data")
		o.MaxUnavailable = value(r.MaxUnavailable, max(1, o.BatchSize))
	case r.MaxSurge == nil && value(r.MaxUnavailable, 0) == 0:
		o.MaxSurge = max(1, o.BatchSize)
	case value(r.MaxSurge, 0) == 0:
		o.MaxUnavailable = value(r.MaxUnavailable, max(1, o.BatchSize))
	default:
		o.MaxSurge, o.MaxUnavailable = *r.MaxSurge, value(r.MaxUnavailable, 0)
	}
	p.Check(o.MaxSurge >= 0 && o.MaxSurge <= MaxBatch, "maxSurge", "must be between 0 and %d, is %d", MaxBatch, o.MaxSurge)
	p.Check(o.MaxUnavailable >= 0 && o.MaxUnavailable <= MaxBatch, "maxUnavailable", "must be between 0 and %d, is %d", MaxBatch, o.MaxUnavailable)
	p.Check(o.MaxSurge > 0 || o.MaxUnavailable > 0, "maxUnavailable", "must be above 0 when maxSurge is 0, or nothing can be replaced")
	p.Check(o.MaxSurge == 0 || o.MaxUnavailable == 0, "maxUnavailable", "must be 0 when maxSurge is above 0: instances either start first or stop first")
}

// blueGreen sets the numbers of a deployment that starts all replacements at once. A request cannot
// choose them.
func (o *Options) blueGreen(p *validate.Problems, r Requested, s *fleet.GroupSpec) {
	p.Check(!s.Static.Enabled, "strategy", "must not be BLUE_GREEN for a static group, because two instances cannot use the same data: use ROLLING")
	for _, f := range []struct {
		name  string
		given *int
	}{{"batchSize", r.BatchSize}, {"maxSurge", r.MaxSurge}, {"maxUnavailable", r.MaxUnavailable}} {
		p.Check(f.given == nil, f.name, "must be omitted with the strategy BLUE_GREEN, which starts all replacements at once")
	}
	o.BatchSize, o.MaxSurge = MaxBlueGreen, MaxBlueGreen
}

// canary sets and checks the size of the first wave.
func (o *Options) canary(p *validate.Problems, canary bool) {
	p.Check(o.CanaryInstances >= 0 && o.CanaryInstances <= MaxBatch, "canaryInstances", "must be between 0 and %d, is %d", MaxBatch, o.CanaryInstances)
	p.Check(o.CanaryPercent >= 0 && o.CanaryPercent <= hundred, "canaryPercent", "must be between 0 and 100, is %d", o.CanaryPercent)
	p.Check(o.CanaryInstances == 0 || o.CanaryPercent == 0, "canaryPercent", "cannot be combined with canaryInstances: give one of them")
	if !canary {
		p.Check(o.CanaryInstances == 0, "canaryInstances", "needs the strategy CANARY")
		p.Check(o.CanaryPercent == 0, "canaryPercent", "needs the strategy CANARY")
		return
	}
	if o.CanaryPercent == 0 {
		o.CanaryInstances = cmp.Or(o.CanaryInstances, defaultCanary)
	}
}

func replacementTimeout(s *fleet.GroupSpec) int {
	if s.StartupTimeoutSeconds == 0 {
		return defaultReplacement
	}
	return min(MaxSeconds, s.StartupTimeoutSeconds+s.Stop.GraceSeconds+fleet.KillAfterSeconds+replacementSlack)
}

func value[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

// Parallel is how many instances are replaced at the same time.
func (o Options) Parallel() int { return min(o.BatchSize, max(o.MaxSurge, o.MaxUnavailable)) }

// StopsFirst reports whether an instance stops before its replacement starts.
func (o Options) StopsFirst() bool { return o.MaxSurge == 0 }

// Wave returns the size of the first wave of a canary deployment that replaces total instances.
func (o Options) Wave(total int) int {
	n := o.CanaryInstances
	if o.CanaryPercent > 0 {
		n = (total*o.CanaryPercent + hundred - 1) / hundred
	}
	return max(1, n)
}

// Healthy returns how long an instance must be ONLINE to be healthy.
func (o Options) Healthy() time.Duration { return time.Duration(o.MinHealthySeconds) * time.Second }

// Stall returns how long a deployment may come no further before it fails.
func (o Options) Stall() time.Duration {
	seconds := o.ReplacementTimeoutSeconds
	if o.HealthGate {
		seconds += max(o.PromotionTimeoutSeconds, o.MinHealthySeconds)
	}
	return time.Duration(seconds) * time.Second
}
