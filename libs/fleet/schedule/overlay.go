package schedule

import (
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

const (
	// MaxOverlays bounds the overlays of a cluster. All active ones are in one record.
	MaxOverlays = 64
	// MaxDuration bounds the window of an overlay with a cron expression, in seconds.
	MaxDuration = 31 * 24 * 3600
)

// Changes are what an overlay changes in its groups. Nil fields stay as the group declares them.
type Changes struct {
	Min         *int  `json:"min,omitempty"`
	Max         *int  `json:"max,omitempty"`
	Maintenance *bool `json:"maintenance,omitempty"`
	// Mode is the scaling mode. Empty keeps the group's.
	Mode fleet.ScalingMode `json:"mode,omitempty"`
	// Message replaces the group's maintenance message. It may be set only if Maintenance is true.
	Message string `json:"message,omitempty"`
}

// Overlay changes fields of groups during time windows. The gateway writes it.
type Overlay struct {
	record.Rev
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Groups and Selector choose the groups: those that are named or have all labels of the selector. At
	// least one is set.
	Groups   []fleet.GroupName `json:"groups,omitempty"`
	Selector map[string]string `json:"selector,omitempty"`
	// A window begins at each time of Cron and lasts DurationSeconds. Otherwise the only window is from
	// From until Until.
	Cron            string    `json:"cron,omitempty"`
	DurationSeconds int       `json:"durationSeconds,omitempty"`
	From            time.Time `json:"from,omitzero"`
	Until           time.Time `json:"until,omitzero"`
	Timezone        string    `json:"timezone,omitempty"`
	Changes         Changes   `json:"changes"`
	Enabled         bool      `json:"enabled"`
	By              string    `json:"by,omitempty"`
	At              time.Time `json:"at"`
}

// The bounds of an overlay. The years are those that JSON can write in every time zone.
const (
	maxSelector      = 16
	minYear, maxYear = 1970, 9998
)

// Validate returns everything that is wrong, each as an Invalid error that names the field. It does not
// check Cron and Timezone.
func (o Overlay) Validate() []error {
	var p validate.Problems
	p.Check(validate.ValidSegment(o.Name), "name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period, not %q", validate.Clip(o.Name))
	p.Lines("description", o.Description, validate.MaxDescription)
	p.Check(len(o.Groups) > 0 || len(o.Selector) > 0, "groups", "is missing: name groups, or give labels in the field selector")
	p.Check(len(o.Groups) <= validate.MaxEntries, "groups", "must have at most %d entries, has %d", validate.MaxEntries, len(o.Groups))
	p.Check(len(slices.Compact(slices.Sorted(slices.Values(o.Groups)))) == len(o.Groups), "groups", "names a group twice")
	p.Check(len(o.Selector) <= maxSelector, "selector", "must have at most %d labels, has %d", maxSelector, len(o.Selector))
	p.AddAll(fleet.ValidateLabels("selector", o.Selector))
	o.validateWindow(&p)
	o.Changes.validate(&p)
	return p.List
}

func (o Overlay) validateWindow(p *validate.Problems) {
	once := !o.From.IsZero() || !o.Until.IsZero()
	switch {
	case o.Cron != "" && once:
		p.Check(false, "cron", "must not be set together with from and until: send one of them")
	case o.Cron != "":
		p.Check(o.DurationSeconds >= 1 && o.DurationSeconds <= MaxDuration, "durationSeconds", "must be between 1 and %d, is %d", MaxDuration, o.DurationSeconds)
	case !once:
		p.Check(false, "cron", "is missing: give a cron expression and durationSeconds, or from and until")
	default:
		p.Check(o.DurationSeconds == 0, "durationSeconds", "has a meaning only with cron: remove it")
		p.Check(!o.From.IsZero(), "from", "is missing")
		p.Check(!o.Until.IsZero(), "until", "is missing")
		for _, t := range []struct {
			field string
			at    time.Time
		}{{"from", o.From}, {"until", o.Until}} {
			year := t.at.UTC().Year()
			p.Check(t.at.IsZero() || year >= minYear && year <= maxYear, t.field, "must be in the years %d to %d", minYear, maxYear)
		}
		p.Check(o.From.IsZero() || o.Until.IsZero() || o.From.Before(o.Until), "until", "must be after from: the overlay would end before it begins")
	}
}

func (c Changes) validate(p *validate.Problems) {
	p.Check(c.Min != nil || c.Max != nil || c.Maintenance != nil || c.Mode != "", "overlay", "changes nothing: set minInstances, maxInstances, scalingMode or maintenance")
	p.Check(c.Mode == "" || validate.OneOf(c.Mode, fleet.ScalingDynamic, fleet.ScalingStatic, fleet.ScalingManual),
		"overlay.scalingMode", "must be DYNAMIC, STATIC or MANUAL, not %q", validate.Clip(string(c.Mode)))
	bound := func(field string, v *int) {
		p.Check(v == nil || *v >= 0 && *v <= validate.MaxInstances, field, "must be between 0 and %d", validate.MaxInstances)
	}
	bound("overlay.minInstances", c.Min)
	bound("overlay.maxInstances", c.Max)
	p.Check(c.Min == nil || c.Max == nil || *c.Max == 0 || *c.Min <= *c.Max, "overlay.minInstances", "must not exceed overlay.maxInstances")
	p.Lines("overlay.maintenanceMessage", c.Message, validate.MaxShown)
	p.Check(c.Message == "" || c.Maintenance != nil && *c.Maintenance, "overlay.maintenanceMessage", "has a meaning only with maintenance true")
}

// Active is what overlays do at present. A gateway decides it by its clock and writes it. Readers use
// the record and no clock.
type Active struct {
	record.Rev
	// Overlays are sorted by name.
	Overlays []ActiveOverlay `json:"overlays,omitempty"`
}

// ActiveOverlay is the latest window of an overlay. An ended one stays, so that a gateway with a slower
// clock does not begin it again.
type ActiveOverlay struct {
	Name string `json:"name"`
	// Revision is that of the overlay.
	Revision int64     `json:"revision"`
	On       bool      `json:"on"`
	Begun    time.Time `json:"begun,omitzero"`
	Until    time.Time `json:"until,omitzero"`
	// The rest is the overlay's. It is empty unless On.
	Groups   []fleet.GroupName `json:"groups,omitempty"`
	Selector map[string]string `json:"selector,omitempty"`
	Changes  Changes           `json:"changes,omitzero"`
}

// Covers reports whether the overlay is active and chooses a group.
func (a ActiveOverlay) Covers(g *fleet.Group) bool {
	return a.On && Chooses(a.Groups, a.Selector, g)
}

// Chooses reports whether a group is named or has all labels of a selector.
func Chooses(groups []fleet.GroupName, selector map[string]string, g *fleet.Group) bool {
	if slices.Contains(groups, g.Name) {
		return true
	}
	for k, v := range selector {
		if have, ok := g.Spec.Labels[k]; !ok || have != v {
			return false
		}
	}
	return len(selector) > 0
}

// Over returns a group as the active overlays change it, or the group itself. Of several overlays that
// change the same field, the one that is last in the order of names applies. A minimum above the maximum
// counts as the maximum.
func (a Active) Over(g *fleet.Group) *fleet.Group {
	var out *fleet.Group
	for n := range a.Overlays {
		if !a.Overlays[n].Covers(g) {
			continue
		}
		if out == nil {
			changed := *g
			out = &changed
		}
		a.Overlays[n].Changes.apply(&out.Spec)
	}
	if out == nil {
		return g
	}
	if limit := out.Spec.Scaling.Max; limit > 0 {
		out.Spec.Scaling.Min = min(out.Spec.Scaling.Min, limit)
	}
	return out
}

func (c Changes) apply(s *fleet.GroupSpec) {
	if c.Min != nil {
		s.Scaling.Min = *c.Min
	}
	if c.Max != nil {
		s.Scaling.Max = *c.Max
	}
	if c.Mode != "" {
		s.Scaling.Mode = c.Mode
	}
	if c.Maintenance != nil {
		s.Maintenance.On = *c.Maintenance
	}
	if c.Message != "" {
		s.Maintenance.Message = c.Message
	}
}

// Same reports whether two overlays have the same effect and description.
func (o Overlay) Same(p Overlay) bool {
	return o.Description == p.Description && slices.Equal(o.Groups, p.Groups) && maps.Equal(o.Selector, p.Selector) && o.Cron == p.Cron &&
		o.DurationSeconds == p.DurationSeconds && o.From.Equal(p.From) && o.Until.Equal(p.Until) && o.Timezone == p.Timezone &&
		o.Enabled == p.Enabled && o.Changes.Same(p.Changes)
}

// Same reports whether two changes are equal.
func (c Changes) Same(d Changes) bool {
	return sameValue(c.Min, d.Min) && sameValue(c.Max, d.Max) && sameValue(c.Maintenance, d.Maintenance) && c.Message == d.Message && c.Mode == d.Mode
}

func sameValue[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
