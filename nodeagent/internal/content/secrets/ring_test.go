package secrets_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
)

var wrappingKey = strings.Repeat("w", 32)

// keyed is a shelf whose secrets are sealed by versioned keys, as gateways do.
type keyed struct {
	shelf
	ring account.Keyring
	// gateway seals.
	gateway *seal.Ring
	keep    string
}

func newKeyed(t *testing.T) *keyed {
	t.Helper()
	k := &keyed{shelf: shelf{all: map[string]content.Secret{}}, keep: t.TempDir()}
	var err error
	if k.gateway, err = seal.NewRing(clusterSecret, wrappingKey, k.load); err != nil {
		t.Fatal(err)
	}
	k.rotate(t, false)
	return k
}

func (k *keyed) load(context.Context) (account.Keyring, error) {
	if k.away {
		return account.Keyring{}, errs.New(errs.Unavailable, "etcd is away")
	}
	return k.ring, nil
}

// rotate makes a new version of the key, and retires the others if asked to.
func (k *keyed) rotate(t *testing.T, retire bool) {
	t.Helper()
	next, err := k.gateway.Next(k.ring, time.Unix(1, 0))
	if err == nil && retire {
		next, err = k.gateway.Retire(next)
	}
	if err != nil {
		t.Fatal(err)
	}
	next.ModRev = k.ring.ModRev + 1
	k.ring = next
	if err := k.gateway.Use(next); err != nil {
		t.Fatal(err)
	}
}

func (k *keyed) store(t *testing.T, name, value string) {
	t.Helper()
	b, err := json.Marshal(map[string]string{"": value})
	if err != nil {
		t.Fatal(err)
	}
	k.all[name] = content.Secret{Name: name, Sealed: k.gateway.Records(content.SecretsKind).About(compose.AboutStored(name)).Seal(b)}
}

func (k *keyed) inline(about, value string) string {
	return "sealed:" + base64.RawURLEncoding.EncodeToString(k.gateway.Values(content.SecretsKind).About(about).Seal([]byte(value)))
}

// agent returns the resolver of an agent that has just started.
func (k *keyed) agent(t *testing.T, keys string) *secrets.Resolver {
	t.Helper()
	ring, err := secrets.NewRing(clusterSecret, keys, k.keep, k.load)
	if err != nil {
		t.Fatal(err)
	}
	r, err := secrets.New(secrets.Config{Read: k.read, Secret: clusterSecret, Ring: ring, StateDir: k.keep, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAnAgentWithTheClusterSecretOpensVersionsWithItsKeyFile(t *testing.T) {
	k := newKeyed(t)
	k.store(t, "db", "recognisable")
	refs := map[string]string{"DB": "secret:db", "INLINE": k.inline(compose.AboutGroup("lobby", "INLINE"), "inline value"), "DEFAULT": k.inline(compose.AboutTemplate("DEFAULT"), "default value")}
	for name, keys := range map[string]string{"no key file": "", "another key file": strings.Repeat("x", 32)} {
		_, err := k.agent(t, keys).Values(t.Context(), "aaaaaa", "lobby", map[string]string{"DB": "secret:db"})
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "give this service the key file of the gateways (seal.key), let the host join with a token") {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := func(when string, r *secrets.Resolver, db string) {
		t.Helper()
		got, err := r.Values(t.Context(), "aaaaaa", "lobby", refs)
		if err != nil || got["DB"] != db || got["INLINE"] != "inline value" || got["DEFAULT"] != "default value" {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	running := k.agent(t, wrappingKey)
	want("at first", running, "recognisable")
	k.rotate(t, false)
	k.store(t, "db", "changed")
	want("after a rotation", running, "changed")
	k.rotate(t, true)
	k.store(t, "other", "x") // the version of the stored copy is retired
	if _, err := running.Values(t.Context(), "bbbbbb", "lobby", map[string]string{"X": "secret:other"}); err != nil {
		t.Fatal(err)
	}
	k.away = true
	want("while etcd is away", running, "changed")
	want("after a restart while etcd is away", k.agent(t, wrappingKey), "changed")
	if err := k.agent(t, wrappingKey).Sweep(func(fleet.InstanceID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(k.keep, "keyring")); err != nil {
		t.Errorf("a sweep removes the keyring: %v", err)
	}
	entries, err := os.ReadDir(k.keep)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(k.keep, e.Name()))
		if err != nil || strings.Contains(string(b), "recognisable") || strings.Contains(string(b), wrappingKey) {
			t.Errorf("%s has a value or a key: %v", e.Name(), err)
		}
	}
}
