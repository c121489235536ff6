// Package reveal opens the sealed values of secrets: those of stored secrets, and those that a reference
// contains. Agents with the cluster secret open them themselves, gateways open them for the other agents.
package reveal

import (
	"encoding/base64"
	"encoding/json"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
)

// Opener opens values. It is safe for concurrent use.
type Opener struct{ records, values seal.Box }

// NewOpener returns an opener with the keys of a cluster.
func NewOpener(ring *seal.Ring) Opener {
	return Opener{ring.Records(content.SecretsKind), ring.Values(content.SecretsKind)}
}

// Stored returns the value of a record that a reference names. NotFound if the record has no such key,
// Invalid if it cannot be opened, Unavailable if the keys cannot be read now.
func (o Opener) Stored(record content.Secret, ref content.SecretRef) (string, error) {
	plain, err := o.records.About(compose.AboutStored(ref.Of)).Open(record.Sealed)
	if err != nil {
		return "", undecrypted(err, record.Sealed, "store the secret again")
	}
	var values map[string]string
	if err := json.Unmarshal(plain, &values); err != nil {
		return "", errs.New(errs.Invalid, "it is corrupt: store it again")
	}
	value, ok := values[ref.Key]
	switch {
	case ok:
		return value, nil
	case ref.Key == "":
		return "", errs.New(errs.NotFound, "the secret has values only by key: refer to one as %s#KEY", ref)
	}
	return "", errs.New(errs.NotFound, "the secret has no such key")
}

// Sealed returns the value of a group's variable that its reference contains. Invalid if it cannot be
// opened, Unavailable if the keys cannot be read now.
func (o Opener) Sealed(g fleet.GroupName, variable string, ref content.SecretRef) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(ref.Of)
	if err == nil {
		for _, about := range []string{compose.AboutGroup(g, variable), compose.AboutTemplate(variable)} {
			var plain []byte
			if plain, err = o.values.About(about).Open(b); err == nil {
				return string(plain), nil
			}
		}
	}
	return "", undecrypted(err, b, "set the value again")
}

// undecrypted returns the error for a sealed value that cannot be opened, with what to do else.
func undecrypted(err error, sealed []byte, otherwise string) error {
	switch {
	case errs.Is(err, errs.Unavailable):
		return err
	case seal.VersionOf(sealed) == "":
		return errs.New(errs.Invalid, "it cannot be decrypted: give this service the cluster secret of the others (cluster.secret), or %s", otherwise)
	}
	return errs.New(errs.Invalid, "it cannot be decrypted: give this service the key file of the gateways (seal.key), let the host join with a token, or %s", otherwise)
}
