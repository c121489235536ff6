package fleet

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of texts, in characters, and of players.
const (
	// MaxWord is of what names something in a word or a few: a platform, a mode, a module.
	MaxWord = 128
	// MaxShown is of what players are shown; it may have newlines.
	MaxShown = 1000
	// MaxDescription is of what a template says of itself; it may have newlines.
	MaxDescription = 2048
	// MaxPlatform is of a template's platform.
	MaxPlatform = 64
	// MaxPlayers is of the players an instance says it takes.
	MaxPlayers = 1_000_000
)

// MaxStatusMessage bounds the message of a status, in bytes: a node writes many at once.
const MaxStatusMessage = 4 << 10

// ClipMessage is a text of at most so many bytes. The end of a longer one is cut off at a
// character, and "…" says so.
func ClipMessage(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	end := max(0, most-len(more))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// newlines takes the newlines out of a text.
var newlines = strings.NewReplacer("\r\n", "", "\n", "")

// word bounds a text that may be left out and has no newline.
func (p *problems) word(field, v string, most int) {
	p.check(utf8.RuneCountInString(v) <= most && !HasControl(v), field, "must be at most %d characters without control characters", most)
}

// lines bounds a text that may be left out and may have newlines, also as forms send them: CRLF.
func (p *problems) lines(field, v string, most int) {
	p.check(utf8.RuneCountInString(v) <= most && !HasControl(newlines.Replace(v)), field,
		"must be at most %d characters without control characters other than newlines and tabs", most)
}

// each bounds a list whose entries are bounded by a rule, and are not empty.
func (p *problems) each(field string, values []string, rule func(field, v string, most int), most int) {
	p.check(len(values) <= maxEntries, field, "must have at most %d entries, has %d", maxEntries, len(values))
	if len(values) > maxEntries {
		return
	}
	for i, v := range values {
		at := fmt.Sprintf("%s[%d]", field, i)
		p.check(v != "", at, "must not be empty or null: leave it out")
		rule(at, v, most)
	}
}

// validateShown bounds what a group tells of itself, and to whom.
func (s GroupSpec) validateShown() []error {
	var p problems
	p.word("platform", s.Software.Platform, MaxWord)
	p.word("platformVersion", s.Software.PlatformVersion, MaxWord)
	p.check(s.Players.Max >= 0 && s.Players.Max <= MaxPlayers, "maxPlayers", "must be between 0 and %d, is %d", MaxPlayers, s.Players.Max)
	p.lines("maintenanceMessage", s.Maintenance.Message, MaxShown)
	p.each("maintenanceBypass", s.Maintenance.Bypass, p.word, MaxWord)
	p.each("motds", s.Motd.Lines, p.lines, MaxShown)
	p.check(oneOf(s.Motd.Mode, "", "STATIC", "SEQUENTIAL", "RANDOM"), "motdMode", "must be STATIC, SEQUENTIAL or RANDOM; %q is not", clip(s.Motd.Mode))
	p.seconds("motdIntervalSeconds", s.Motd.IntervalSeconds)
	c := s.Composition
	p.each("attachedModules", c.AttachedModules, p.word, MaxWord)
	p.each("enabledModules", c.EnabledModules, p.word, MaxWord)
	p.each("disabledModules", c.DisabledModules, p.word, MaxWord)
	p.each("attachedExtensions", c.AttachedExtensions, p.word, MaxWord)
	p.each("enabledExtensions", c.EnabledExtensions, p.word, MaxWord)
	p.each("disabledExtensions", c.DisabledExtensions, p.word, MaxWord)
	return p.list
}

// CheckDescription is why a template cannot say this of itself: Invalid, and which of
// description and platform is at fault.
func CheckDescription(description, platform string) error {
	var p problems
	p.lines("description", description, MaxDescription)
	p.word("platform", platform, MaxPlatform)
	if len(p.list) == 0 {
		return nil
	}
	return p.list[0]
}
