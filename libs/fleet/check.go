package fleet

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// CheckType is a way to check whether a server responds.
type CheckType string

// The checks.
const (
	CheckNone      CheckType = "none"      // the process runs
	CheckPort      CheckType = "port"      // the port accepts a TCP connection
	CheckUDP       CheckType = "udp"       // the server answers a datagram
	CheckHTTP      CheckType = "http"      // a GET returns the expected status
	CheckMinecraft CheckType = "minecraft" // the server answers Minecraft's server list ping (Java edition)
	CheckBedrock   CheckType = "bedrock"   // the server answers RakNet's unconnected ping
	CheckA2S       CheckType = "a2s"       // the server answers Valve's A2S_INFO query
	CheckLog       CheckType = "log"       // a console line matches
	CheckHeartbeat CheckType = "heartbeat" // the server reports it, using its own token
	CheckAny       CheckType = "any"       // a heartbeat or an answer to the platform's ping, whichever comes first
)

// CheckTypes lists every check.
var CheckTypes = [...]CheckType{CheckNone, CheckPort, CheckUDP, CheckHTTP, CheckMinecraft, CheckBedrock, CheckA2S, CheckLog, CheckHeartbeat, CheckAny}

// TellsPlayers reports whether the check's answer contains the number of players.
func (t CheckType) TellsPlayers() bool {
	return t == CheckMinecraft || t == CheckBedrock || t == CheckA2S || t == CheckHeartbeat || t == CheckAny
}

// PingOf returns the check that servers of a platform answer: CheckBedrock for platforms known to
// speak it, otherwise CheckMinecraft.
func PingOf(platform string) CheckType {
	switch platform {
	case "BEDROCK", "GEYSER", "NUKKIT", "POWERNUKKITX", "POCKETMINE", "CLOUDBURST", "WATERDOGPE":
		return CheckBedrock
	}
	return CheckMinecraft
}

// ReadinessInForce returns the effective readiness check. Without a declared one it is CheckAny
// for a group that names its platform and has no command, otherwise CheckNone.
func (s GroupSpec) ReadinessInForce() Check {
	switch {
	case s.Readiness.Type != "":
		return s.Readiness
	case s.Command == "" && s.Software.Platform != "" && !s.Software.Assumed:
		return Check{Type: CheckAny}
	}
	return Check{Type: CheckNone}
}

// Check describes how to check whether a server responds. For the zero value, readiness follows
// ReadinessInForce and liveness is CheckNone.
type Check struct {
	Type CheckType `json:"type"`
	// Port is the name of the additional port to check. Empty means the main port.
	Port string `json:"port,omitempty"`
	// Path is the path an HTTP check requests. Empty means /.
	Path string `json:"path,omitempty"`
	// Status is the status an HTTP check expects. 0 accepts 200 to 399.
	Status int `json:"status,omitempty"`
	// Send is the datagram of a UDP check, with \xNN for bytes. Empty sends one zero byte.
	Send string `json:"send,omitempty"`
	// Pattern is a regular expression (RE2). A log check matches it against each line of this run,
	// a UDP or HTTP check against the answer. Empty matches any answer.
	Pattern string `json:"pattern,omitempty"`
}

// Liveness describes how a ready server is monitored. The zero value disables it.
type Liveness struct {
	Check
	// IntervalSeconds is the time between two checks; 0 means 10. For heartbeats it is the maximum
	// age of the last one; 0 means 90.
	IntervalSeconds float64 `json:"intervalSeconds,omitempty"`
	// TimeoutSeconds bounds the wait for an answer. 0 means 2.
	TimeoutSeconds float64 `json:"timeoutSeconds,omitempty"`
	// Failures is how many checks in a row must fail to make the instance unhealthy (0 means 3),
	// Successes how many must pass to make it healthy again (0 means 1). Heartbeats ignore both:
	// one late heartbeat is enough, and so is the next one that arrives.
	Failures  int `json:"failures,omitempty"`
	Successes int `json:"successes,omitempty"`
	// Then is the action for an unhealthy instance. Empty means UnhealthyRestart.
	Then OnUnhealthy `json:"then,omitempty"`
}

// The defaults of Liveness.
const (
	DefaultInterval = 10 * time.Second
	DefaultSilence  = 90 * time.Second // three heartbeats of the known plugins
	DefaultTimeout  = 2 * time.Second
	DefaultFailures = 3
)

// Interval returns the time between two checks, or the maximum age of a heartbeat.
func (l Liveness) Interval() time.Duration {
	switch {
	case l.IntervalSeconds > 0:
		return seconds(l.IntervalSeconds)
	case l.Type == CheckHeartbeat:
		return DefaultSilence
	}
	return DefaultInterval
}

// Timeout returns the maximum wait for an answer.
func (l Liveness) Timeout() time.Duration {
	if l.TimeoutSeconds > 0 {
		return seconds(l.TimeoutSeconds)
	}
	return DefaultTimeout
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// OnUnhealthy is the action for an instance that fails its liveness check.
type OnUnhealthy string

// The actions for an unhealthy instance.
const (
	UnhealthyRestart OnUnhealthy = "restart" // kill it; this counts as a crash, so the group's OnCrash applies
	UnhealthyReport  OnUnhealthy = "report"  // only report it in the state's reason
)

// Bounds of checks.
const (
	maxCheckText    = 1 << 10
	minCheckSeconds = 0.1
	maxCheckSeconds = 3600
	maxCheckCount   = 100
)

// validate returns everything that is wrong with a check. ports are the group's additional ports.
func (c Check) validate(field string, ports []NamedPort) []error {
	var p validate.Problems
	known := c.Type == "" || slices.Contains(CheckTypes[:], c.Type)
	p.Check(known, field+".type", "must be one of %s, not %q", listed(CheckTypes[:]), validate.Clip(string(c.Type)))
	uses := func(name string, set bool, types ...CheckType) {
		p.Check(!known || !set || slices.Contains(types, c.Type), field+"."+name, "does not apply to a check of type %s, only to %s", c.Type, listed(types))
	}
	uses("port", c.Port != "", CheckPort, CheckUDP, CheckHTTP, CheckMinecraft, CheckBedrock, CheckA2S, CheckAny)
	uses("path", c.Path != "", CheckHTTP)
	uses("status", c.Status != 0, CheckHTTP)
	uses("send", c.Send != "", CheckUDP)
	uses("pattern", c.Pattern != "", CheckLog, CheckUDP, CheckHTTP)
	p.Check(c.Port == "" || slices.ContainsFunc(ports, func(n NamedPort) bool { return strings.EqualFold(n.Name, c.Port) }),
		field+".port", "%q is not the name of an additional port", validate.Clip(c.Port))
	p.Check(c.Path == "" || strings.HasPrefix(c.Path, "/") && len(c.Path) <= maxCheckText && !validate.HasControl(c.Path) && !strings.Contains(c.Path, " "),
		field+".path", "must begin with /, have at most %d bytes and contain no blanks", maxCheckText)
	p.Check(c.Status == 0 || c.Status >= 100 && c.Status <= 599, field+".status", "must be between 100 and 599, is %d", c.Status)
	_, err := c.Datagram()
	p.Check(err == nil, field+".send", "%v", err)
	p.Check(c.Type != CheckLog || c.Pattern != "", field+".pattern", "is required: the check waits for a console line that matches it")
	p.Check(len(c.Pattern) <= maxCheckText, field+".pattern", "must be at most %d bytes", maxCheckText)
	if len(c.Pattern) <= maxCheckText {
		_, err := regexp.Compile(c.Pattern)
		p.Check(err == nil, field+".pattern", "is not a regular expression: %v", err)
	}
	return p.List
}

func (l Liveness) validate(ports []NamedPort) []error {
	var p validate.Problems
	p.AddAll(l.Check.validate("liveness", ports))
	p.Check(l.Type != CheckLog && l.Type != CheckAny, "liveness.type", "must not be %s, which only works as a readiness check", l.Type)
	within := func(name string, v float64) {
		p.Check(v == 0 || v >= minCheckSeconds && v <= maxCheckSeconds, "liveness."+name,
			"must be between %v and %d, or 0 for the default; is %v", minCheckSeconds, maxCheckSeconds, v)
	}
	within("intervalSeconds", l.IntervalSeconds)
	within("timeoutSeconds", l.TimeoutSeconds)
	count := func(name string, v int) {
		p.Check(v >= 0 && v <= maxCheckCount, "liveness."+name, "must be between 0 (the default) and %d, is %d", maxCheckCount, v)
	}
	count("failures", l.Failures)
	count("successes", l.Successes)
	p.Check(validate.OneOf(l.Then, "", UnhealthyRestart, UnhealthyReport), "liveness.then", "must be restart or report, not %q", validate.Clip(string(l.Then)))
	return p.List
}

// Datagram returns what a UDP check sends: Send with \xNN, \n, \r, \t and \\ decoded.
func (c Check) Datagram() ([]byte, error) {
	if c.Send == "" {
		return []byte{0}, nil
	}
	if len(c.Send) > maxCheckText {
		return nil, fmt.Errorf("must be at most %d bytes", maxCheckText)
	}
	var out []byte
	plain := map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', '\\': '\\'}
	for n := 0; n < len(c.Send); n++ {
		if c.Send[n] != '\\' {
			out = append(out, c.Send[n])
			continue
		}
		switch rest := c.Send[n+1:]; {
		case len(rest) >= 1 && plain[rest[0]] != 0:
			out = append(out, plain[rest[0]])
			n++
		case len(rest) >= 3 && rest[0] == 'x':
			b, err := strconv.ParseUint(rest[1:3], 16, 8)
			if err != nil {
				return nil, unknownEscape(n)
			}
			out = append(out, byte(b))
			n += 3
		default:
			return nil, unknownEscape(n)
		}
	}
	return out, nil
}

func unknownEscape(at int) error {
	return fmt.Errorf(`has an unknown escape at position %d: use \xNN, \n, \r, \t or \\`, at)
}

// listed joins values with commas.
func listed[T ~string](all []T) string {
	names := make([]string, len(all))
	for n, v := range all {
		names[n] = string(v)
	}
	return strings.Join(names, ", ")
}
