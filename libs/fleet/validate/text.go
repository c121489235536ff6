package validate

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of texts in characters, and of players.
const (
	// MaxWord bounds short names: a platform, a mode, a module.
	MaxWord = 128
	// MaxShown bounds texts shown to players. They may contain newlines.
	MaxShown = 1000
	// MaxDescription bounds a template's description. It may contain newlines.
	MaxDescription = 2048
	// MaxPlatform bounds a template's platform.
	MaxPlatform = 64
	// MaxPlayers bounds the player limit of an instance.
	MaxPlayers = 1_000_000
)

// ClipMessage shortens a text to at most most bytes. A shortened text ends in "…" and no character
// is split.
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

// newlines removes the newlines from a text.
var newlines = strings.NewReplacer("\r\n", "", "\n", "")

// Word checks an optional text without newlines.
func (p *Problems) Word(field, v string, most int) {
	p.Check(utf8.RuneCountInString(v) <= most && !HasControl(v), field, "must be at most %d characters without control characters", most)
}

// Lines checks an optional text that may contain newlines, including the CRLF of forms.
func (p *Problems) Lines(field, v string, most int) {
	p.Check(utf8.RuneCountInString(v) <= most && !HasControl(newlines.Replace(v)), field,
		"must be at most %d characters without control characters other than newlines and tabs", most)
}

// Each checks a list whose entries must not be empty and must satisfy rule.
func (p *Problems) Each(field string, values []string, rule func(field, v string, most int), most int) {
	p.Check(len(values) <= MaxEntries, field, "must have at most %d entries, has %d", MaxEntries, len(values))
	if len(values) > MaxEntries {
		return
	}
	for i, v := range values {
		at := fmt.Sprintf("%s[%d]", field, i)
		p.Check(v != "", at, "must not be empty or null: remove it")
		rule(at, v, most)
	}
}
