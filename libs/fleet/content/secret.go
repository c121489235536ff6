package content

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Secret is a stored, sealed secret. The gateway writes it; agents read
// the secrets their instances refer to. Its key is its name.
type Secret struct {
	record.Rev
	Name string `json:"name"`
	// Sealed is the JSON object of the values by key, sealed with SecretsKind and AboutStored. The
	// value without a key has the key "".
	Sealed []byte `json:"sealed"`
	// Keys are the keys of the values, sorted.
	Keys []string `json:"keys"`
	// Selector selects the groups that may use the secret by their labels. The empty one selects all.
	Selector label.Selector `json:"selector,omitzero"`
	// Version counts the writes of this secret from 1.
	Version   int64     `json:"version"`
	By        string    `json:"by,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// ForGroup returns Denied if a group with these labels may not use the secret.
func (s Secret) ForGroup(labels map[string]string) error {
	if s.Selector.Matches(labels) {
		return nil
	}
	return errs.New(errs.Denied, "secret %s is for groups with the labels %s: give the group these labels, or change the selector of the secret", s.Name, s.Selector)
}

// SecretsKind is the kind under which values of secrets are sealed; see package seal.
const SecretsKind = "secret"

// Limits of stored secrets.
const (
	// MaxSecretBytes bounds the total size of a secret's keys and values.
	MaxSecretBytes = 64 << 10
	// MaxSecretKeys bounds the values of one secret, MaxSecrets the number of secrets.
	MaxSecretKeys = 64
	MaxSecrets    = 2000
)

var (
	secretName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]|\.[A-Za-z0-9_-]){0,63}$`)
	secretKey  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)
)

// ValidateSecret returns what is wrong with a secret's name and values. Each error is Invalid and
// names a field. No error contains a value.
func ValidateSecret(name string, values map[string]string) []error {
	var p validate.Problems
	p.Check(len(name) <= 64 && secretName.MatchString(name), "name", "must be 1 to 64 letters, digits, _ . or -, starting with a letter or digit, without two dots in a row, not %q", validate.Clip(name))
	p.Check(len(values) > 0, "value", "is missing: set value, or values by key")
	p.Check(len(values) <= MaxSecretKeys, "values", "must have at most %d entries", MaxSecretKeys)
	total := 0
	for k, v := range values {
		total += len(k) + len(v)
		p.Check(k == "" || secretKey.MatchString(k), "values", "the key %q must be 1 to 64 letters, digits, _ . or -", validate.Clip(k))
		p.Check(v != "", "value", "must not be empty")
		p.Check(validate.ValidValue(v), "value", "must be valid UTF-8 without NUL")
		p.Check(v != Hidden, "value", "%s is only the mask of a hidden value: enter a value, or do not change the secret", Hidden)
	}
	p.Check(total <= MaxSecretBytes, "values", "must have at most %d bytes in total, but have %d", MaxSecretBytes, total)
	return p.List
}

// SecretKind says where the value of a secret variable is.
type SecretKind string

// The kinds of secret references.
const (
	// SecretStored refers to a stored secret: secret:NAME, or secret:NAME#KEY for one of its
	// values.
	SecretStored SecretKind = "secret"
	// SecretFile refers to a file below the node's secrets directory: file:PATH.
	SecretFile SecretKind = "file"
	// SecretEnv refers to a variable in the agent's environment: env:NAME.
	SecretEnv SecretKind = "env"
	// SecretSealed is the sealed value itself: sealed:BASE64. The gateway creates it from
	// plain-text values; clients must not send one.
	SecretSealed SecretKind = "sealed"
)

// SecretRef is a reference to a secret's value. It does not contain the plain text.
type SecretRef struct {
	Kind SecretKind
	// Of is the name, the path, the variable, or the sealed value in base64.
	Of string
	// Key selects one of several values of a stored secret. "" is the one without a key.
	Key string
}

// String returns the reference as it is written, without the value of a sealed one.
func (r SecretRef) String() string {
	switch {
	case r.Kind == SecretSealed:
		return "its stored value"
	case r.Key != "":
		return string(r.Kind) + ":" + r.Of + "#" + r.Key
	}
	return string(r.Kind) + ":" + r.Of
}

// RefersToSecret reports whether a value starts like a reference: the name of a kind and a colon.
// Such a value is never treated as plain text.
func RefersToSecret(value string) bool {
	kind, _, found := strings.Cut(value, ":")
	return found && slices.Contains([]SecretKind{SecretStored, SecretFile, SecretEnv, SecretSealed}, SecretKind(kind))
}

// IsSealed reports whether a value is sealed.
func IsSealed(value string) bool { return strings.HasPrefix(value, string(SecretSealed)+":") }

// ParseSecretRef parses a reference. The error is Invalid, without a field. It does not check
// whether the referenced secret exists.
func ParseSecretRef(value string) (SecretRef, error) {
	kind, of, _ := strings.Cut(value, ":")
	r := SecretRef{Kind: SecretKind(kind), Of: of}
	switch r.Kind {
	case SecretStored:
		var keyed bool
		if r.Of, r.Key, keyed = strings.Cut(of, "#"); len(r.Of) > 64 || !secretName.MatchString(r.Of) || keyed && !secretKey.MatchString(r.Key) {
			return SecretRef{}, errs.New(errs.Invalid, "is not a valid reference: use secret:NAME or secret:NAME#KEY with letters, digits, _ . and -")
		}
	case SecretFile:
		if !validate.CleanPath(of) || path.Clean(of) != of || of == "." || strings.ContainsAny(of, "\n\r") {
			return SecretRef{}, errs.New(errs.Invalid, "is not a valid reference: use file:PATH with a path relative to the node's secrets directory, without ..")
		}
	case SecretEnv:
		if !validate.EnvNamePattern.MatchString(of) || len(of) > 256 {
			return SecretRef{}, errs.New(errs.Invalid, "is not a valid reference: use env:NAME with a variable of the agent's environment")
		}
	case SecretSealed:
		if of == "" {
			return SecretRef{}, errs.New(errs.Invalid, "is an empty sealed value")
		}
	default:
		return SecretRef{}, errs.New(errs.Invalid, "must be a reference: secret:NAME, secret:NAME#KEY, file:PATH or env:NAME")
	}
	return r, nil
}

// Hidden replaces a password for users who may not see it. Writing it keeps the stored password.
const Hidden = "***"
