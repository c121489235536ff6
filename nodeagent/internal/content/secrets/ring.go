package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/orreryhq/orrery/libs/atomicfile"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/seal"
)

// ringFile has the keyring that was last read. Its keys are wrapped.
const ringFile = "keyring"

// NewRing returns the keys that open what the gateway sealed. secret is the cluster secret, keys the
// key-encryption keys; see seal.NewRing. read reads the keyring; while etcd is away, the last one is used,
// which is stored in stateDir.
func NewRing(secret, keys, stateDir string, read func(context.Context) (account.Keyring, error)) (*seal.Ring, error) {
	path := filepath.Join(stateDir, ringFile)
	return seal.NewRing(secret, keys, func(ctx context.Context) (account.Keyring, error) {
		ring, err := read(ctx)
		switch {
		case err == nil:
			return ring, keepRing(path, ring)
		case errs.Is(err, errs.NotFound):
			return ring, err
		}
		b, readErr := os.ReadFile(path)
		if readErr != nil {
			if !errors.Is(readErr, fs.ErrNotExist) {
				err = errors.Join(err, readErr)
			}
			return ring, err
		}
		return ring, errs.WrapAs(errs.Unavailable, "secrets.ring", json.Unmarshal(b, &ring))
	})
}

func keepRing(path string, ring account.Keyring) error {
	b, err := json.Marshal(ring)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(path, b)
	}
	return errs.WrapAs(errs.Unavailable, "secrets.ring", err)
}
