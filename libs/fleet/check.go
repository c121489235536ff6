package fleet

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// CheckType is a way of finding out whether a server serves.
type CheckType string

// The checks.
const (
	CheckNone      CheckType = "none"      // the process runs
	CheckPort      CheckType = "port"      // the port accepts a TCP connection
	CheckUDP       CheckType = "udp"       // a datagram is answered
	CheckHTTP      CheckType = "http"      // a GET is answered with the status that is expected
	CheckMinecraft CheckType = "minecraft" // the server list ping of Minecraft, Java edition, is answered
	CheckBedrock   CheckType = "bedrock"   // the unconnected ping of RakNet is answered
	CheckA2S       CheckType = "a2s"       // Valve's server query A2S_INFO is answered
	CheckLog       CheckType = "log"       // a line of the console matches
	CheckHeartbeat CheckType = "heartbeat" // the server says so itself, with its own token
	CheckAny       CheckType = "any"       // a heartbeat says so or the platform's ping is answered, whichever comes first
)

// CheckTypes lists every check.
var CheckTypes = [...]CheckType{CheckNone, CheckPort, CheckUDP, CheckHTTP, CheckMinecraft, CheckBedrock, CheckA2S, CheckLog, CheckHeartbeat, CheckAny}

// TellsPlayers reports whether an answer says how many players there are.
func (t CheckType) TellsPlayers() bool {
	return t == CheckMinecraft || t == CheckBedrock || t == CheckA2S || t == CheckHeartbeat || t == CheckAny
}

// PingOf is the check that servers of a platform answer: Bedrock's for those that are known
// to speak it, else that of Minecraft, Java edition.
func PingOf(platform string) CheckType {
	switch platform {
	case "BEDROCK", "GEYSER", "NUKKIT", "POWERNUKKITX", "POCKETMINE", "CLOUDBURST", "WATERDOGPE":
		return CheckBedrock
	}
	return CheckMinecraft
}

// ReadinessInForce is the readiness that counts: the declared one. Without one it is CheckAny
// for a group whose platform a client named and that has no command, else CheckNone.
func (s GroupSpec) ReadinessInForce() Check {
	switch {
	case s.Readiness.Type != "":
		return s.Readiness
	case s.Command == "" && s.Software.Platform != "" && !s.Software.Assumed:
		return Check{Type: CheckAny}
	}
	return Check{Type: CheckNone}
}

// Check is how a server is asked whether it serves. The zero value says nothing: a readiness
// follows ReadinessInForce then, and a liveness is CheckNone.
type Check struct {
	Type CheckType `json:"type"`
	// Port names the additional port that is asked; empty is the main one.
	Port string `json:"port,omitempty"`
	// Path is what an HTTP check gets; empty is /.
	Path string `json:"path,omitempty"`
	// Status is what an HTTP check expects; 0 is any from 200 to 399.
	Status int `json:"status,omitempty"`
	// Send is the datagram of a UDP check, with \xNN for bytes; empty is one zero byte.
	Send string `json:"send,omitempty"`
	// Pattern is a regular expression (RE2): of a log check it must match a line of this
	// run, of a UDP or HTTP check the answer. Empty matches any answer.
	Pattern string `json:"pattern,omitempty"`
}

// Liveness is how a server that was ready is watched. The zero value does not.
type Liveness struct {
	Check
	// IntervalSeconds is the time between two questions, 0 is 10; of a heartbeat how old it
	// may become, 0 is 90.
	IntervalSeconds float64 `json:"intervalSeconds,omitempty"`
	// TimeoutSeconds bounds the wait for an answer. 0 is 2.
	TimeoutSeconds float64 `json:"timeoutSeconds,omitempty"`
	// Failures in a row make the instance unhealthy, Successes in a row healthy again.
	// 0 is 3, and 1. A heartbeat that is too old counts at once, and so does the next one.
	Failures  int `json:"failures,omitempty"`
	Successes int `json:"successes,omitempty"`
	// Then is what follows. Empty is UnhealthyRestart.
	Then OnUnhealthy `json:"then,omitempty"`
}

// What a liveness is that does not say.
const (
	DefaultInterval = 10 * time.Second
	DefaultSilence  = 90 * time.Second // three heartbeats of the known plugins
	DefaultTimeout  = 2 * time.Second
	DefaultFailures = 3
)

// Interval is the time between two questions; of a heartbeat how old it may become.
func (l Liveness) Interval() time.Duration {
	switch {
	case l.IntervalSeconds > 0:
		return seconds(l.IntervalSeconds)
	case l.Type == CheckHeartbeat:
		return DefaultSilence
	}
	return DefaultInterval
}

// Timeout bounds the wait for an answer.
func (l Liveness) Timeout() time.Duration {
	if l.TimeoutSeconds > 0 {
		return seconds(l.TimeoutSeconds)
	}
	return DefaultTimeout
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// OnUnhealthy is what follows when a server that serves no more is found out.
type OnUnhealthy string

// What follows.
const (
	UnhealthyRestart OnUnhealthy = "restart" // it is ended, which counts as a crash, and what the group says of crashes follows
	UnhealthyReport  OnUnhealthy = "report"  // the reason of its state says so
)

// Bounds of checks.
const (
	maxCheckText    = 1 << 10
	minCheckSeconds = 0.1
	maxCheckSeconds = 3600
	maxCheckCount   = 100
)

// validate lists what is wrong with a check under a field; ports are the group's additional ones.
func (c Check) validate(field string, ports []NamedPort) []error {
	var p problems
	known := c.Type == "" || slices.Contains(CheckTypes[:], c.Type)
	p.check(known, field+".type", "must be one of %s; %q is not known", listed(CheckTypes[:]), clip(string(c.Type)))
	uses := func(name string, set bool, types ...CheckType) {
		p.check(!known || !set || slices.Contains(types, c.Type), field+"."+name, "is of no use in a check of type %s: it belongs to %s", c.Type, listed(types))
	}
	uses("port", c.Port != "", CheckPort, CheckUDP, CheckHTTP, CheckMinecraft, CheckBedrock, CheckA2S, CheckAny)
	uses("path", c.Path != "", CheckHTTP)
	uses("status", c.Status != 0, CheckHTTP)
	uses("send", c.Send != "", CheckUDP)
	uses("pattern", c.Pattern != "", CheckLog, CheckUDP, CheckHTTP)
	p.check(c.Port == "" || slices.ContainsFunc(ports, func(n NamedPort) bool { return strings.EqualFold(n.Name, c.Port) }),
		field+".port", "%q is not the name of an additional port", clip(c.Port))
	p.check(c.Path == "" || strings.HasPrefix(c.Path, "/") && len(c.Path) <= maxCheckText && !HasControl(c.Path) && !strings.Contains(c.Path, " "),
		field+".path", "must begin with / and have at most %d bytes without blanks", maxCheckText)
	p.check(c.Status == 0 || c.Status >= 100 && c.Status <= 599, field+".status", "must be between 100 and 599, is %d", c.Status)
	_, err := c.Datagram()
	p.check(err == nil, field+".send", "%v", err)
	p.check(c.Type != CheckLog || c.Pattern != "", field+".pattern", "must be given: it is what a line of the console must match")
	p.check(len(c.Pattern) <= maxCheckText, field+".pattern", "must be at most %d bytes", maxCheckText)
	if len(c.Pattern) <= maxCheckText {
		_, err := regexp.Compile(c.Pattern)
		p.check(err == nil, field+".pattern", "is not a regular expression: %v", err)
	}
	return p.list
}

func (l Liveness) validate(ports []NamedPort) []error {
	var p problems
	p.addAll(l.Check.validate("liveness", ports))
	p.check(l.Type != CheckLog && l.Type != CheckAny, "liveness.type", "%s can only tell that a server is ready: use it in readiness", l.Type)
	within := func(name string, v float64) {
		p.check(v == 0 || v >= minCheckSeconds && v <= maxCheckSeconds, "liveness."+name,
			"must be between %v and %d, or 0 for the default; is %v", minCheckSeconds, maxCheckSeconds, v)
	}
	within("intervalSeconds", l.IntervalSeconds)
	within("timeoutSeconds", l.TimeoutSeconds)
	count := func(name string, v int) {
		p.check(v >= 0 && v <= maxCheckCount, "liveness."+name, "must be between 0 (the default) and %d, is %d", maxCheckCount, v)
	}
	count("failures", l.Failures)
	count("successes", l.Successes)
	p.check(oneOf(l.Then, "", UnhealthyRestart, UnhealthyReport), "liveness.then", "must be restart or report; %q is not", clip(string(l.Then)))
	return p.list
}

// Datagram is what a UDP check sends: Send with \xNN for a byte, \n, \r, \t and \\.
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
		var b byte
		switch rest := c.Send[n+1:]; {
		case len(rest) >= 1 && plain[rest[0]] != 0:
			out = append(out, plain[rest[0]])
			n++
		case len(rest) >= 3 && rest[0] == 'x' && hexByte(rest[1:3], &b):
			out = append(out, b)
			n += 3
		default:
			return nil, fmt.Errorf(`has a \ at position %d that begins none of \xNN, \n, \r, \t and \\`, n)
		}
	}
	return out, nil
}

func hexByte(s string, b *byte) bool {
	_, err := fmt.Sscanf(s, "%02x", b)
	return err == nil
}

// listed are values for a sentence.
func listed[T ~string](all []T) string {
	names := make([]string, len(all))
	for n, v := range all {
		names[n] = string(v)
	}
	return strings.Join(names, ", ")
}
