package seal

import (
	"errors"
	"io"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"
	"filippo.io/age/plugin"

	"github.com/orreryhq/orrery/libs/errs"
)

// IdentityField is the setting with the identities that decrypt an encrypted key file.
const IdentityField = "seal.identity"

const (
	// maxKeyFile bounds the decrypted keys, in bytes.
	maxKeyFile = 1 << 16
	// decryptTimeout bounds the wait for a plugin, and so for a person who has to touch a token.
	decryptTimeout = time.Minute
)

// DecryptKeys returns the key-encryption keys in text (see CheckKeys). If text is an armored file of
// age (https://age-encryption.org/v1), DecryptKeys decrypts it with the identities, one per line. The
// identity of a plugin runs the program age-plugin-NAME, which may ask a hardware token or a key
// management service. logf prints its messages. The error is Invalid, with the field to correct.
func DecryptKeys(text, identities string, logf func(format string, args ...any)) (string, error) {
	if !strings.HasPrefix(strings.TrimSpace(text), armor.Header) {
		return text, nil
	}
	if strings.TrimSpace(identities) == "" {
		return "", errs.Field(IdentityField, "is missing: %s is an encrypted file of age; pass the file with its identity (--seal-identity-file FILE)", Field)
	}
	parsed, err := parseIdentities(identities, logf)
	if err != nil {
		return "", errs.Field(IdentityField, "has no usable identity of age: %v", err)
	}
	var plain io.Reader
	decrypted := make(chan struct{})
	go func() {
		defer close(decrypted)
		plain, err = age.Decrypt(armor.NewReader(strings.NewReader(text)), parsed...)
	}()
	select {
	case <-decrypted:
	case <-time.After(decryptTimeout): // the program ends with this error, and the plugin with it
		return "", errs.Field(IdentityField, "did not decrypt %s within %v: does its plugin wait for a token?", Field, decryptTimeout)
	}
	var none *age.NoIdentityMatchError
	var missing *plugin.NotFoundError
	switch {
	case errors.As(err, &none):
		return "", errs.Field(IdentityField, "does not decrypt %s: pass an identity that it was encrypted for, or encrypt the keys for the recipient of this one (age -a -r RECIPIENT)", Field)
	case errors.As(err, &missing):
		return "", errs.Field(IdentityField, "needs the program age-plugin-%s: install it into a directory of this program's PATH", missing.Name)
	case err != nil:
		return "", errs.Field(Field, "cannot be decrypted: %v", err)
	}
	keys, err := io.ReadAll(io.LimitReader(plain, maxKeyFile+1))
	switch {
	case err != nil:
		return "", errs.Field(Field, "is a damaged file of age: %v", err)
	case len(keys) > maxKeyFile:
		return "", errs.Field(Field, "is too large: it must have at most %d bytes when it is decrypted", maxKeyFile)
	}
	return string(keys), nil
}

// parseIdentities reads identities of age and of its plugins. Lines that begin with # are comments.
func parseIdentities(text string, logf func(format string, args ...any)) (out []age.Identity, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var one []age.Identity
		if strings.HasPrefix(line, "AGE-PLUGIN-") {
			var p *plugin.Identity
			p, err = plugin.NewIdentity(line, pluginUI(logf))
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

// pluginUI prints what a plugin says. It answers no question: a service has no terminal. age drops the
// errors that it returns, so it prints them too.
func pluginUI(logf func(format string, args ...any)) *plugin.ClientUI {
	noTerminal := func(name string) error {
		logf("age-plugin-%s asks a question, and a service cannot answer: use an identity that needs no PIN", name)
		return errors.New("there is no terminal")
	}
	return &plugin.ClientUI{
		DisplayMessage: func(name, message string) error { logf("age-plugin-%s: %s", name, message); return nil },
		RequestValue:   func(name, _ string, _ bool) (string, error) { return "", noTerminal(name) },
		Confirm:        func(name, _, _, _ string) (bool, error) { return false, noTerminal(name) },
		WaitTimer:      func(name string) { logf("age-plugin-%s needs time; touch the token if it has a button", name) },
	}
}
