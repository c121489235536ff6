package account

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// MaxKeyVersions bounds the versions of a Keyring.
const MaxKeyVersions = 200

// Keyring has the keys that seal secrets in etcd, each wrapped by a key-encryption key that is not in
// etcd. A cluster without a keyring seals with its cluster secret. The gateway writes it.
type Keyring struct {
	record.Rev
	// Current is the ID of the version that seals.
	Current string `json:"current"`
	// Versions are the oldest first.
	Versions []KeyVersion `json:"versions"`
	// Resealing is true from when a version becomes current until all records are sealed by it.
	Resealing bool `json:"resealing,omitempty"`
}

// KeyVersion is one version of the keys.
type KeyVersion struct {
	ID string `json:"id"`
	// WrappedBy is the ID of the key-encryption key that wrapped the keys.
	WrappedBy string `json:"wrappedBy"`
	// Records is the wrapped key of records. It is empty once every record is sealed by a later version.
	Records []byte `json:"records,omitempty"`
	// Values is the wrapped key of the values that plans and versions of templates contain. It stays,
	// because these never change.
	Values    []byte    `json:"values"`
	CreatedAt time.Time `json:"createdAt"`
}

// Retired reports whether no record is sealed by the version.
func (v KeyVersion) Retired() bool { return len(v.Records) == 0 }
