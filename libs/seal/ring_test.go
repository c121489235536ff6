package seal_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/seal"
)

var (
	clusterSecret = strings.Repeat("c", 32)
	wrapping      = strings.Repeat("k", 32)
	replaced      = strings.Repeat("r", 32)
)

// cluster has a keyring, as etcd does.
type cluster struct {
	ring  account.Keyring
	away  error
	reads int
}

func (c *cluster) load(context.Context) (account.Keyring, error) {
	c.reads++
	switch {
	case c.away != nil:
		return account.Keyring{}, c.away
	case c.ring.ModRev == 0:
		return account.Keyring{}, errs.New(errs.NotFound, "no keyring")
	}
	return c.ring, nil
}

func (c *cluster) store(t *testing.T, next account.Keyring, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	next.ModRev = c.ring.ModRev + 1
	c.ring = next
}

func (c *cluster) opened(t *testing.T, keys string) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(clusterSecret, keys, c.load)
	if err == nil {
		_, err = r.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (c *cluster) rotate(t *testing.T, r *seal.Ring) {
	t.Helper()
	next, err := r.Next(c.ring, time.Unix(1, 0))
	c.store(t, next, err)
	if _, err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func opens(t *testing.T, box seal.Box, sealed []byte) {
	t.Helper()
	if plain, err := box.Open(sealed); err != nil || string(plain) != "plain" {
		t.Errorf("%q, %v", plain, err)
	}
}

func TestAVersionIsRetiredForRecordsAndOpensValues(t *testing.T) {
	c := &cluster{}
	r := c.opened(t, wrapping)
	records, values := r.Records("secret").About("a"), r.Values("secret").About("a")
	legacy := records.Seal([]byte("plain"))
	if seal.VersionOf(legacy) != "" {
		t.Errorf("without a keyring a version is named: %q", seal.VersionOf(legacy))
	}
	c.rotate(t, r)
	record, value := records.Seal([]byte("plain")), values.Seal([]byte("plain"))
	first := c.ring.Current
	for _, sealed := range [][]byte{record, value} {
		if seal.VersionOf(sealed) != first || r.Current() != first {
			t.Errorf("the version is %q and %q, want %q", seal.VersionOf(sealed), r.Current(), first)
		}
	}
	if _, err := values.Open(record); err == nil {
		t.Error("the key of values opens records")
	}
	if text := base64.StdEncoding.EncodeToString(record); !strings.HasPrefix(text, base64.RawURLEncoding.EncodeToString([]byte("ork"+first))) {
		t.Errorf("the version cannot be found in %s", text)
	}
	c.rotate(t, r)
	renewed, err := records.Renew(record)
	if err != nil || seal.VersionOf(renewed) != c.ring.Current {
		t.Errorf("renewed by %q, %v", seal.VersionOf(renewed), err)
	}
	if again, err := records.Renew(renewed); err != nil || &again[0] != &renewed[0] {
		t.Errorf("a current value is sealed again: %v", err)
	}
	if none, err := records.Renew(nil); none != nil || err != nil {
		t.Errorf("nothing is renewed to %q, %v", none, err)
	}
	next, err := r.Retire(c.ring)
	c.store(t, next, err)
	later := c.opened(t, wrapping)
	opens(t, later.Records("secret").About("a"), renewed)
	opens(t, later.Records("secret").About("a"), legacy)
	opens(t, later.Values("secret").About("a"), value)
	if plain, err := later.Records("secret").About("a").Open(record); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != seal.Field {
		t.Errorf("a retired version opens a record: %q, %v", plain, err)
	}
	if _, err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	opens(t, records, record) // a record that was read before its version was retired
}

func TestAnUnknownVersionIsLookedUpOnce(t *testing.T) {
	c := &cluster{}
	writer, reader := c.opened(t, wrapping), c.opened(t, wrapping)
	c.rotate(t, writer)
	opens(t, reader.Records("secret"), writer.Records("secret").Seal([]byte("plain")))
	reads := c.reads
	for range 3 {
		if _, err := reader.Records("secret").Open([]byte("orkabcdef" + strings.Repeat("x", 40))); !errs.Is(err, errs.Invalid) {
			t.Errorf("an unknown version: %v", err)
		}
	}
	if c.reads != reads+1 {
		t.Errorf("%d reads for a version that does not exist", c.reads-reads)
	}
	c.rotate(t, writer)
	c.away = errs.New(errs.Unavailable, "etcd is away")
	if _, err := reader.Records("secret").Open(writer.Records("secret").Seal([]byte("plain"))); !errs.Is(err, errs.Unavailable) {
		t.Errorf("while etcd is away: %v, want Unavailable", err)
	}
}

func TestTheKeyEncryptionKeyIsReplacedWithAnOverlap(t *testing.T) {
	c := &cluster{}
	before := c.opened(t, wrapping)
	c.rotate(t, before)
	sealed := before.Records("secret").Seal([]byte("plain"))
	both := c.opened(t, replaced+"\n"+wrapping+"\n")
	if ids := both.KeyIDs(); len(ids) != 2 || ids[1] != before.KeyIDs()[0] {
		t.Errorf("the ids are %v", ids)
	}
	c.rotate(t, both)
	after := c.opened(t, replaced)
	opens(t, after.Records("secret"), sealed)
	for _, v := range c.ring.Versions {
		if v.WrappedBy != both.KeyIDs()[0] {
			t.Errorf("version %s is wrapped by %s", v.ID, v.WrappedBy)
		}
	}
}

func TestAWrongKeySaysWhatToDo(t *testing.T) {
	c := &cluster{}
	r := c.opened(t, wrapping)
	c.rotate(t, r)
	for name, test := range map[string]struct{ keys, want string }{
		"none":         {"", "pass the key file of the cluster's gateways (--seal-key-file FILE)"},
		"another":      {replaced, "use the key file of the cluster's gateways, or add the previous key as its second line"},
		"short":        {"short", "at least 32 characters"},
		"a short line": {wrapping + "\nshort", "at least 32 characters"},
		"too many":     {strings.Repeat(wrapping+"\n", 5), "at most 4 lines"},
	} {
		t.Run(name, func(t *testing.T) {
			other, err := seal.NewRing(clusterSecret, test.keys, c.load)
			if err == nil {
				_, err = other.Load(t.Context())
			}
			if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != seal.Field || !strings.Contains(errs.MessageOf(err), test.want) {
				t.Errorf("%v", err)
			}
			if strings.Contains(err.Error(), replaced) || strings.Contains(err.Error(), wrapping) {
				t.Error("the error contains a key")
			}
		})
	}
	swapped := c.ring
	swapped.Versions = append([]account.KeyVersion(nil), c.ring.Versions...)
	swapped.Versions[0].Records = swapped.Versions[0].Values
	if err := r.Use(swapped); !errs.Is(err, errs.Invalid) {
		t.Errorf("swapped keys are used: %v", err)
	}
	if _, err := seal.Only(clusterSecret).Next(account.Keyring{}, time.Unix(1, 0)); errs.FieldOf(err) != seal.Field {
		t.Errorf("a version without a key to wrap it: %v", err)
	}
	full := account.Keyring{Versions: make([]account.KeyVersion, account.MaxKeyVersions)}
	if _, err := r.Next(full, time.Unix(1, 0)); !errs.Is(err, errs.Exhausted) {
		t.Errorf("too many versions: %v", err)
	}
}

func TestTheKeyringOfARestoredBackupIsUsed(t *testing.T) {
	c := &cluster{}
	r := c.opened(t, wrapping)
	c.rotate(t, r)
	backup := c.ring
	c.rotate(t, r)
	later := r.Records("secret").Seal([]byte("plain"))
	c.ring = backup
	if _, err := r.Load(t.Context()); err != nil || r.Current() != backup.Current || r.Rev() != backup.ModRev {
		t.Errorf("%v, the version is %s", err, r.Current())
	}
	opens(t, r.Records("secret"), later) // while the program runs
	c.ring = account.Keyring{}
	if _, err := r.Load(t.Context()); err != nil || r.Current() != "" || r.Rev() != 0 {
		t.Errorf("%v, the version is %s", err, r.Current())
	}
}
