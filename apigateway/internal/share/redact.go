package share

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// hidden stands where something was taken out.
const hidden = "***"

// rules find what nobody else is to see. Each has one group, or several of which one takes
// part: what is hidden. Their order matters where one finds a part of what another does.
var rules = []*regexp.Regexp{
	// Keys in PEM.
	regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`),
	// JSON Web Tokens, also without their signature.
	regexp.MustCompile(`\b(eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?)`),
	// Tokens that say what they are: ours, and those of services people use.
	regexp.MustCompile(`\b((?:ort|pxr|ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|npm|sk|rk)[_-][A-Za-z0-9_-]{16,})`),
	regexp.MustCompile(`\b((?:AKIA|ASIA)[A-Z0-9]{16})\b`),
	// Credentials in URIs: scheme://user:password@host, and tokens in the place of both.
	regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://([^\s/?#"'<>]+)@`),
	// Headers, and what looks like them.
	regexp.MustCompile(`(?i)\b(?:bearer|basic)[ \t]+([A-Za-z0-9._~+/=-]{6,})`),
	regexp.MustCompile(`(?i)\b(?:authorization|cookie|set-cookie|x-api-key)["']?[ \t]*[:=][ \t]*(?:"([^"\n]*)"?|'([^'\n]*)'?|([^\s"'][^\n]*))`),
	// Lines of settings files: all after the name.
	regexp.MustCompile(`(?im)^[ \t]*[\w.-]*(?:password|passwd|passphrase|secret|token|api[_.-]?key|private[_.-]?key)[ \t]*[:=][ \t]*([^\s"'{\[][^\n]*)`),
	// Settings and fields that are named like a secret: name=value, name: value, "name":"value".
	regexp.MustCompile(`(?i)(?:pass(?:word|wd|phrase)?|pwd|secret|token|ticket|credentials?|api[_.-]?key|access[_.-]?key|private[_.-]?key|secret[_.-]?key|forwarding[_.-]?secret)\\?["']?[ \t]*(?:=|:)[ \t]*(?:\\?"((?:[^"\\\n]|\\.)*)\\?"?|'([^'\n]*)'?|([^\s"',;&}\])]+))`),
	// Options of commands.
	regexp.MustCompile(`(?i)--?[a-z0-9-]*(?:password|passwd|secret|token|api-key)[ \t]+([^\s-][^\s]*)`),
}

// Redact is a text without what looks like a credential: tokens, passwords, keys, and what
// stands before the host of a URI. What it hides has "***" in its place; lines stay lines.
func Redact(text string) string {
	for _, rule := range rules {
		text = hide(rule, text)
	}
	return text
}

// hide replaces what the groups of a rule find.
func hide(rule *regexp.Regexp, text string) string {
	found := rule.FindAllStringSubmatchIndex(text, -1)
	if found == nil {
		return text
	}
	var out strings.Builder
	done := 0
	for _, at := range found {
		for group := 2; group+1 < len(at); group += 2 {
			from, to := at[group], at[group+1]
			if from < done || from == to {
				continue
			}
			out.WriteString(text[done:from])
			out.WriteString(hidden)
			for range strings.Count(text[from:to], "\n") {
				out.WriteByte('\n')
			}
			done = to
		}
	}
	out.WriteString(text[done:])
	return out.String()
}

// secretName are names of fields that hold what nobody else is to see.
var secretName = regexp.MustCompile(`(?i)(?:password|passwd|passphrase|secret|token|ticket|credentials?|api[_.-]?key|access[_.-]?key|private[_.-]?key)$`)

// RedactJSON is a value as JSON, an object, without what looks like a credential: each text
// in it is redacted, and what is named like a secret is hidden. Internal when it is no object.
func RedactJSON(value any) (map[string]any, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, errs.As(errs.Internal, "share.RedactJSON", err)
	}
	in := json.NewDecoder(bytes.NewReader(b))
	in.UseNumber() // numbers stay as they are
	var out map[string]any
	if err := in.Decode(&out); err != nil {
		return nil, errs.As(errs.Internal, "share.RedactJSON", err)
	}
	for name, v := range out {
		out[name] = redacted(name, v)
	}
	return out, nil
}

// redacted is a value without credentials; name is what it is called.
func redacted(name string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for inner, of := range v {
			v[inner] = redacted(inner, of)
		}
	case []any:
		for n, of := range v {
			v[n] = redacted(name, of)
		}
	case string:
		if v != "" && secretName.MatchString(name) {
			return hidden
		}
		return Redact(v)
	case json.Number:
		if secretName.MatchString(name) {
			return hidden
		}
	}
	return value
}
