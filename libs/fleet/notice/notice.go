// Package notice has the records of outgoing notices: events that a gateway sends to an address outside
// Orrery, such as a chat.
package notice

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Limits of notices.
const (
	// MaxNotices bounds the notices of a cluster.
	MaxNotices = 64
	// MaxEvents bounds the patterns of a notice, MaxGroups its groups.
	MaxEvents = 64
	MaxGroups = 64
	// MaxURL bounds the URL, in bytes.
	MaxURL = 2048
	// MinSecret and MaxSecret bound the secret, in bytes.
	MinSecret = 16
	MaxSecret = 256
	// MaxError bounds State.LastError, in bytes.
	MaxError = 300
)

// Format is the format of the requests.
type Format string

// The formats.
const (
	// JSON is Orrery's own format.
	JSON Format = "json"
	// Discord and Slack are the formats of these services' incoming webhooks.
	Discord Format = "discord"
	Slack   Format = "slack"
)

// Severity is how urgent an event is.
type Severity string

// The severities, in order.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// AtLeast reports whether s is as urgent as least.
func (s Severity) AtLeast(least Severity) bool {
	order := []Severity{Info, Warning, Critical}
	return slices.Index(order, s) >= slices.Index(order, least)
}

// Notice says which events are sent where. The gateway writes it.
type Notice struct {
	record.Rev
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Format      Format `json:"format"`
	// Events are event types, or the beginnings of types followed by "*".
	Events []string `json:"events"`
	// Groups limits the notice to events of these groups. Empty means all events.
	Groups []fleet.GroupName `json:"groups,omitempty"`
	// MinSeverity leaves out less urgent events.
	MinSeverity Severity `json:"minSeverity"`
	// Address is the URL without its path and query, which may be secret; see Shown.
	Address string `json:"address"`
	// Signed is true if the target has a secret.
	Signed bool `json:"signed,omitempty"`
	// Sealed is the JSON of the Target, sealed.
	Sealed  []byte    `json:"sealed"`
	Enabled bool      `json:"enabled"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at"`
}

// Target is where the requests of a notice go, and the secret that signs them. Secret may be empty.
type Target struct {
	URL    string `json:"url"`
	Secret string `json:"secret,omitempty"`
}

// hidden replaces the path and query of a URL in Shown.
const hidden = "***"

// Shown returns a URL that Target.Validate accepts without its path and query. The URLs of Discord and
// Slack have their credential there.
func Shown(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	out := u.Scheme + "://" + u.Host + "/"
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		out += hidden
	}
	return out
}

// About returns the context that the target of a notice is sealed for.
func About(name string) string { return "notice/" + name }

// Validate returns everything that is wrong, each as an Invalid error that names the field. types are the
// event types that can be sent.
func (n Notice) Validate(types []string) []error {
	var p validate.Problems
	p.Check(validate.ValidSegment(n.Name), "name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period, not %q", validate.Clip(n.Name))
	p.Lines("description", n.Description, validate.MaxDescription)
	p.Check(validate.OneOf(n.Format, JSON, Discord, Slack), "format", "must be json, discord or slack, is %q", validate.Clip(string(n.Format)))
	p.Check(validate.OneOf(n.MinSeverity, Info, Warning, Critical), "minSeverity", "must be info, warning or critical, is %q", validate.Clip(string(n.MinSeverity)))
	p.Check(len(n.Events) > 0, "events", `is empty: name event types, such as GROUP_CRASH_LOOP, DEPLOYMENT_* or *`)
	p.Check(len(n.Events) <= MaxEvents, "events", "must have at most %d entries, has %d", MaxEvents, len(n.Events))
	for i, pattern := range n.Events[:min(len(n.Events), MaxEvents)] {
		known := slices.ContainsFunc(types, func(t string) bool { return matches(pattern, t) })
		p.Check(known, fmt.Sprintf("events[%d]", i), "matches no event that can be sent: %q. Use a type of a kept event, or its beginning and *", validate.Clip(pattern))
		p.Check(!slices.Contains(n.Events[:i], pattern), fmt.Sprintf("events[%d]", i), "names %q twice", validate.Clip(pattern))
	}
	p.Check(len(n.Groups) <= MaxGroups, "groups", "must have at most %d entries, has %d", MaxGroups, len(n.Groups))
	p.Check(len(slices.Compact(slices.Sorted(slices.Values(n.Groups)))) == len(n.Groups), "groups", "names a group twice")
	return p.List
}

// Validate returns what is wrong with a target for a format, each as an Invalid error that names the field.
func (t Target) Validate(f Format) []error {
	var p validate.Problems
	u, err := url.Parse(t.URL)
	switch {
	case t.URL == "":
		p.Check(false, "url", "is missing")
	case len(t.URL) > MaxURL:
		p.Check(false, "url", "must be at most %d bytes", MaxURL)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || validate.HasControl(t.URL):
		p.Check(false, "url", "must be an http or https URL with a host")
	case u.User != nil:
		p.Check(false, "url", "must not have a user name or password: put a token into the path or query")
	case u.Fragment != "":
		p.Check(false, "url", "must not have a fragment")
	case strings.Trim(u.Path, "/") == hidden:
		p.Check(false, "url", "is shortened, and is not the shortened URL of this notice: send the whole URL")
	}
	if t.Secret != "" {
		p.Check(f == JSON, "secret", `has a meaning only with the format json: send "" to remove it`)
		p.Check(len(t.Secret) >= MinSecret && len(t.Secret) <= MaxSecret, "secret", "must have %d to %d bytes", MinSecret, MaxSecret)
	}
	return p.List
}

// matches reports whether a pattern names a type.
func matches(pattern, eventType string) bool {
	if start, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(eventType, start)
	}
	return pattern == eventType
}

// Wants reports whether a notice sends an event of a type and severity that concerns the groups. Empty
// groups are ignored.
func (n Notice) Wants(eventType string, s Severity, groups ...fleet.GroupName) bool {
	named := func(g fleet.GroupName) bool { return g != "" && slices.Contains(n.Groups, g) }
	return s.AtLeast(n.MinSeverity) && (len(n.Groups) == 0 || slices.ContainsFunc(groups, named)) &&
		slices.ContainsFunc(n.Events, func(pattern string) bool { return matches(pattern, eventType) })
}

// Same reports whether two notices have the same fields, except the sealed target, who wrote them and when.
func (n Notice) Same(o Notice) bool {
	return n.Description == o.Description && n.Format == o.Format && slices.Equal(n.Events, o.Events) && slices.Equal(n.Groups, o.Groups) &&
		n.MinSeverity == o.MinSeverity && n.Address == o.Address && n.Signed == o.Signed && n.Enabled == o.Enabled
}

// Holder is a gateway in one of its sessions.
type Holder struct {
	Replica string `json:"replica,omitempty"`
	// Epoch is the create-revision of the session.
	Epoch int64 `json:"epoch,omitempty"`
}

// State is how far the deliveries of a notice are. The gateway writes it.
type State struct {
	record.Rev
	Name string `json:"name"`
	// Holder is the gateway that delivers.
	Holder Holder `json:"holder,omitzero"`
	// Position is the ID of the last event that is done. Empty means the revision at which the notice was
	// written.
	Position string `json:"position,omitempty"`
	// Delivered, Failed and Dropped count events: accepted by the target, given up, and removed from the
	// full queue.
	Delivered int64 `json:"delivered,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
	Dropped   int64 `json:"dropped,omitempty"`
	// Waiting is the number of events in the queue.
	Waiting int `json:"waiting,omitempty"`
	// Failures counts the attempts that failed since the last success.
	Failures int `json:"failures,omitempty"`
	// FailingSince is when the first of them ended; zero without one.
	FailingSince time.Time `json:"failingSince,omitzero"`
	LastSuccess  time.Time `json:"lastSuccess,omitzero"`
	LastAttempt  time.Time `json:"lastAttempt,omitzero"`
	// LastEvent is the type of the last event that was sent.
	LastEvent string `json:"lastEvent,omitempty"`
	// LastStatus is the status code of the last answer; 0 if the target did not answer.
	LastStatus int `json:"lastStatus,omitempty"`
	// LastError says why the last attempt failed; empty if it did not.
	LastError string `json:"lastError,omitempty"`
}
