package seal

import (
	"errors"
	"io"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
	"filippo.io/age/plugin"

	"github.com/orreryhq/orrery/libs/errs"
)

// IdentityField is the setting with the identities that decrypt an encrypted key file.
const IdentityField = "seal.identity"

// maxKeyFile bounds the decrypted keys, in bytes.
const maxKeyFile = 1 << 16

// DecryptKeys returns the key-encryption keys in text (see CheckKeys). If text is an armored file of
// age (https://age-encryption.org/v1), DecryptKeys decrypts it with the identities, one per line. The
// identity of a plugin runs the program age-plugin-NAME, which may ask a hardware token or a key
// management service, and may wait for it. say prints its messages. The error names the field to correct.
func DecryptKeys(text, identities string, say func(format string, args ...any)) (string, error) {
	if !strings.HasPrefix(strings.TrimSpace(text), armor.Header) {
		return text, nil
	}
	if strings.TrimSpace(identities) == "" {
		return "", errs.Field(IdentityField, "is missing: %s is an encrypted file of age; pass the file with its identity (--seal-identity-file FILE)", Field)
	}
	parsed, err := parseIdentities(identities, say)
	if err != nil {
		return "", errs.Field(IdentityField, "has no usable identity of age: %v", err)
	}
	plain, err := age.Decrypt(armor.NewReader(strings.NewReader(text)), parsed...)
	if none := (*age.NoIdentityMatchError)(nil); errors.As(err, &none) {
		return "", errs.Field(IdentityField, "does not decrypt %s: %v; encrypt the keys for the recipient of this identity (age -a -r RECIPIENT), or pass the identity that they were encrypted for", Field, errors.Join(none.Errors...))
	}
	if err != nil {
		return "", errs.Field(Field, "cannot be decrypted: %v", err)
	}
	keys, err := io.ReadAll(io.LimitReader(plain, maxKeyFile))
	if err != nil {
		return "", errs.Field(Field, "is a damaged file of age: %v", err)
	}
	return string(keys), nil
}

// parseIdentities reads identities of age and of its plugins. Lines that begin with # are comments.
func parseIdentities(text string, say func(format string, args ...any)) (out []age.Identity, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var one []age.Identity
		if strings.HasPrefix(line, "AGE-PLUGIN-") {
			var p *plugin.Identity
			p, err = plugin.NewIdentity(line, pluginUI(say))
			one = []age.Identity{p}
		} else {
			one, err = age.ParseIdentities(strings.NewReader(line))
		}
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	if len(out) == 0 {
		return nil, errors.New("it is empty")
	}
	return out, nil
}

// pluginUI prints what a plugin says. It answers no question: a service has no terminal.
func pluginUI(say func(format string, args ...any)) *plugin.ClientUI {
	noTerminal := func(name string) error {
		return errors.New("age-plugin-" + name + " asks a question, and a service cannot answer: use an identity that needs no PIN")
	}
	return &plugin.ClientUI{
		DisplayMessage: func(name, message string) error { say("age-plugin-%s: %s", name, message); return nil },
		RequestValue:   func(name, _ string, _ bool) (string, error) { return "", noTerminal(name) },
		Confirm:        func(name, _, _, _ string) (bool, error) { return false, noTerminal(name) },
		WaitTimer:      func(name string) { say("age-plugin-%s needs time; touch the token if it has a button", name) },
	}
}
