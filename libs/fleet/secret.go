package fleet

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Secret is a secret that an operator has stored, sealed under the cluster secret. The
// gateway writes it; agents read those that their instances refer to. Its key is its name.
type Secret struct {
	Rev
	Name string `json:"name"`
	// Sealed is the JSON object of its values by key, sealed as SecretsKind about
	// AboutStored of its name. The value without a key has the key "".
	Sealed []byte `json:"sealed"`
	// Keys are the keys of its values, sorted.
	Keys []string `json:"keys"`
	// Version counts what was stored under the name, from 1.
	Version   int64     `json:"version"`
	By        string    `json:"by,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// SecretsKind is what values of secrets are sealed as; see the package seal.
const SecretsKind = "secret"

// AboutStored, AboutGroup and AboutTemplate are what a value is sealed about: it opens
// nowhere else. A group's is also that of the values given when one of its instances is
// started.
func AboutStored(name string) string                 { return "secret/" + name }
func AboutGroup(g GroupName, variable string) string { return "group/" + string(g) + "/" + variable }
func AboutTemplate(variable string) string           { return "template/" + variable }

// Bounds of stored secrets.
const (
	// MaxSecretBytes is what a secret's keys and values may come to.
	MaxSecretBytes = 64 << 10
	// MaxSecretKeys bounds the values of one secret, MaxSecrets the secrets.
	MaxSecretKeys = 64
	MaxSecrets    = 2000
)

var (
	secretName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]|\.[A-Za-z0-9_-]){0,63}$`)
	secretKey  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)
)

// ValidateSecret tells what is wrong with a secret's name and values. Each error is
// Invalid and names a field, and none has a value.
func ValidateSecret(name string, values map[string]string) []error {
	var p problems
	p.check(len(name) <= 64 && secretName.MatchString(name), "name", "must be letters, digits, _ . or -, beginning with a letter or digit, without two dots in a row, at most 64 in all; %q is not", clip(name))
	p.check(len(values) > 0, "value", "is missing: give value, or values by key")
	p.check(len(values) <= MaxSecretKeys, "values", "must be at most %d", MaxSecretKeys)
	total := 0
	for k, v := range values {
		total += len(k) + len(v)
		p.check(k == "" || secretKey.MatchString(k), "values", "the key %q must be letters, digits, _ . or -, at most 64", clip(k))
		p.check(v != "", "value", "must not be empty")
		p.check(validValue(v), "value", "must be text without NUL")
		p.check(v != Hidden, "value", "%s stands for a value that is not shown: give the value, or leave the secret alone", Hidden)
	}
	p.check(total <= MaxSecretBytes, "values", "must be at most %d bytes together, are %d", MaxSecretBytes, total)
	return p.list
}

// SecretKind is where the value of a variable of type SECRET is.
type SecretKind string

// The kinds of references.
const (
	// SecretStored is a stored secret: secret:NAME, or secret:NAME#KEY for one of its values.
	SecretStored SecretKind = "secret"
	// SecretFile is a file below the node's directory of secrets: file:PATH.
	SecretFile SecretKind = "file"
	// SecretEnv is a variable of the agent's environment: env:NAME.
	SecretEnv SecretKind = "env"
	// SecretSealed is the value itself, sealed: sealed:BASE64. The gateway makes these of
	// values that are given in clear, and nobody else may give one.
	SecretSealed SecretKind = "sealed"
)

// SecretRef is a reference to a secret's value. It does not hold it in clear.
type SecretRef struct {
	Kind SecretKind
	// Of is the name, the path, the variable, or what is sealed in base64.
	Of string
	// Key is one of several values of a stored secret; "" for the one without a key.
	Key string
}

// String is the reference as it is written; of a sealed value only that it is one.
func (r SecretRef) String() string {
	switch {
	case r.Kind == SecretSealed:
		return "its stored value"
	case r.Key != "":
		return string(r.Kind) + ":" + r.Of + "#" + r.Key
	}
	return string(r.Kind) + ":" + r.Of
}

// RefersToSecret reports whether a value is, or was meant as, a reference: what begins
// with the name of a kind and a colon is never taken for a value in clear.
func RefersToSecret(value string) bool {
	kind, _, found := strings.Cut(value, ":")
	return found && slices.Contains([]SecretKind{SecretStored, SecretFile, SecretEnv, SecretSealed}, SecretKind(kind))
}

// IsSealed reports whether a value is sealed.
func IsSealed(value string) bool { return strings.HasPrefix(value, string(SecretSealed)+":") }

// ParseSecretRef reads a reference. Invalid says what is wrong with it, without a field;
// whether it leads anywhere is known where it is followed.
func ParseSecretRef(value string) (SecretRef, error) {
	kind, of, _ := strings.Cut(value, ":")
	r := SecretRef{Kind: SecretKind(kind), Of: of}
	switch r.Kind {
	case SecretStored:
		var keyed bool
		if r.Of, r.Key, keyed = strings.Cut(of, "#"); len(r.Of) > 64 || !secretName.MatchString(r.Of) || keyed && !secretKey.MatchString(r.Key) {
			return SecretRef{}, errs.New(errs.Invalid, "refers to no secret: secret:NAME or secret:NAME#KEY, of letters, digits, _ . and -")
		}
	case SecretFile:
		if !CleanPath(of) || path.Clean(of) != of || of == "." || strings.ContainsAny(of, "\n\r") {
			return SecretRef{}, errs.New(errs.Invalid, "refers to no file: file:PATH, relative to the node's directory of secrets, without ..")
		}
	case SecretEnv:
		if !envNamePattern.MatchString(of) || len(of) > 256 {
			return SecretRef{}, errs.New(errs.Invalid, "refers to no variable of the agent's environment: env:NAME")
		}
	case SecretSealed:
		if of == "" {
			return SecretRef{}, errs.New(errs.Invalid, "is sealed and empty")
		}
	default:
		return SecretRef{}, errs.New(errs.Invalid, "must be a reference: secret:NAME, secret:NAME#KEY, file:PATH or env:NAME")
	}
	return r, nil
}

// SecretRefs are the references of an instance's variables of type SECRET, by variable:
// the plan's, and over them those given at its start. Those without any are left out.
func SecretRefs(p Plan, pl Placement) map[string]string {
	out := map[string]string{}
	for key, ref := range p.Secrets {
		if given, ok := pl.Values[key]; ok {
			ref = given
		}
		if ref != "" {
			out[key] = ref
		}
	}
	return out
}
