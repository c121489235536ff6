package seal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	"filippo.io/age/plugin"

	"github.com/orreryhq/orrery/libs/errs"
)

const clearKey = "0123456789abcdef0123456789abcdef\n"

// encrypted returns text as an armored file of age.
func encrypted(t *testing.T, text string, to ...age.Recipient) string {
	t.Helper()
	var b strings.Builder
	a := armor.NewWriter(&b)
	w, err := age.Encrypt(a, to...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestAnEncryptedKeyFileIsDecrypted(t *testing.T) {
	mine, other := identity(t), identity(t)
	file := encrypted(t, clearKey, mine.Recipient())
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "age-plugin-broken"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	phrase, err := age.NewScryptRecipient("phrase")
	if err != nil {
		t.Fatal(err)
	}
	phrase.SetWorkFactor(2)
	for name, c := range map[string]struct{ text, identities, field, message string }{
		"clear":               {text: clearKey},
		"clear with identity": {text: clearKey, identities: mine.String()},
		"empty":               {},
		"encrypted":           {text: file, identities: "# a comment\n\n" + other.String() + "\n" + mine.String() + "\n"},
		"no identity":         {text: file, identities: " \n", field: IdentityField, message: "--seal-identity-file"},
		"only comments":       {text: file, identities: "# mine\n", field: IdentityField, message: "empty"},
		"no identity of age":  {text: file, identities: clearKey, field: IdentityField, message: "no usable identity"},
		"another identity":    {text: file, identities: other.String(), field: IdentityField, message: "does not decrypt seal.key"},
		"a phrase":            {text: encrypted(t, clearKey, phrase), identities: mine.String(), field: IdentityField, message: "does not decrypt seal.key"},
		"a missing plugin":    {text: file, identities: plugin.EncodeIdentity("absent", nil), field: IdentityField, message: "age-plugin-absent"},
		"a broken plugin":     {text: file, identities: plugin.EncodeIdentity("broken", nil), field: Field, message: "cannot be decrypted"},
		"cut off":             {text: file[:len(file)-60], identities: mine.String(), field: Field, message: "damaged"},
		"too large":           {text: encrypted(t, strings.Repeat(clearKey, 2000), mine.Recipient()), identities: mine.String(), field: Field, message: "too large"},
		"altered":             {text: strings.Replace(file, "\n", "\nAAAA", 2), identities: mine.String(), field: Field, message: "cannot be decrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecryptKeys(c.text, c.identities, t.Logf)
			if c.field != "" {
				if errs.FieldOf(err) != c.field || !strings.Contains(err.Error(), c.message) {
					t.Errorf("%v, want the field %s and %q", err, c.field, c.message)
				}
				return
			}
			want := clearKey
			if c.text == "" {
				want = ""
			}
			if err != nil || got != want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
