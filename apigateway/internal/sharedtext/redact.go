package sharedtext

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// hidden replaces redacted text.
const hidden = "***"

// rules match credentials. The capture groups of a rule are redacted; at most one of them matches.
// The order matters where two rules overlap.
var rules = []*regexp.Regexp{
	// Keys in PEM.
	regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`),
	// JSON Web Tokens, also without their signature.
	regexp.MustCompile(`\b(eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?)`),
	// Tokens with a known prefix: ours and those of common services.
	regexp.MustCompile(`\b((?:ort|pxr|ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|npm|sk|rk)[_-][A-Za-z0-9_-]{16,})`),
	regexp.MustCompile(`\b((?:AKIA|ASIA)[A-Z0-9]{16})\b`),
	// Credentials in URIs: scheme://user:password@host, or a token instead of both.
	regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://([^\s/?#"'<>]+)@`),
	// HTTP headers and similar text.
	regexp.MustCompile(`(?i)\b(?:bearer|basic)[ \t]+([A-Za-z0-9._~+/=-]{6,})`),
	regexp.MustCompile(`(?i)\b(?:authorization|cookie|set-cookie|x-api-key)["']?[ \t]*[:=][ \t]*(?:"([^"\n]*)"?|'([^'\n]*)'?|([^\s"'][^\n]*))`),
	// Lines of settings files: everything after the name.
	regexp.MustCompile(`(?im)^[ \t]*[\w.-]*(?:password|passwd|passphrase|secret|token|api[_.-]?key|private[_.-]?key)[ \t]*[:=][ \t]*([^\s"'{\[][^\n]*)`),
	// Settings and fields with the name of a secret: name=value, name: value, "name":"value".
	regexp.MustCompile(`(?i)(?:pass(?:word|wd|phrase)?|pwd|secret|token|ticket|credentials?|api[_.-]?key|access[_.-]?key|private[_.-]?key|secret[_.-]?key|forwarding[_.-]?secret)\\?["']?[ \t]*(?:=|:)[ \t]*(?:\\?"((?:[^"\\\n]|\\.)*)\\?"?|'([^'\n]*)'?|([^\s"',;&}\])]+))`),
	// Command-line options.
	regexp.MustCompile(`(?i)--?[a-z0-9-]*(?:password|passwd|secret|token|api-key)[ \t]+([^\s-][^\s]*)`),
}

// Redact replaces everything that looks like a credential with "***": tokens, passwords, keys and
// the user info of URIs. The number of lines does not change.
func Redact(text string) string {
	for _, rule := range rules {
		text = hide(rule, text)
	}
	return text
}

// hide replaces the groups that a rule matches.
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

// secretName matches the names of fields with secret values.
var secretName = regexp.MustCompile(`(?i)(?:password|passwd|passphrase|secret|token|ticket|credentials?|api[_.-]?key|access[_.-]?key|private[_.-]?key)$`)

// RedactJSON encodes a value as a JSON object and redacts it: each string like Redact, and the values
// of fields named like a secret. It returns Internal if the value is not an object.
func RedactJSON(value any) (map[string]any, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "sharedtext.RedactJSON", err)
	}
	in := json.NewDecoder(bytes.NewReader(b))
	in.UseNumber() // keeps numbers exact
	var out map[string]any
	if err := in.Decode(&out); err != nil {
		return nil, errs.WrapAs(errs.Internal, "sharedtext.RedactJSON", err)
	}
	for name, v := range out {
		out[name] = redacted(name, v)
	}
	return out, nil
}

// redacted returns a value without credentials. name is its field's name.
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
