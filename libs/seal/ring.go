package seal

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

const (
	// idBytes is the length of a version's ID.
	idBytes = 6
	// minKey is the minimum length of a key-encryption key, in characters, maxKeys how many a program may
	// have.
	minKey  = 32
	maxKeys = 4
	// reloadTimeout bounds the read of the keyring for a version that is not known, reloadPause the time
	// between two of them without effect.
	reloadTimeout = 2 * time.Second
	reloadPause   = time.Second
)

// Field is the setting with the key-encryption keys.
const Field = "seal.key"

// wrapping is a key-encryption key.
type wrapping struct {
	id  string
	key []byte
}

// Ring has the keys of a cluster. It reads the keyring again when a value names a version that it does
// not know. It is safe for concurrent use.
type Ring struct {
	secret string
	keys   []wrapping
	load   func(context.Context) (account.Keyring, error)

	mu       sync.Mutex // guards what follows
	rev      int64
	now      string
	versions map[string]version
	missing  string    // the version that was last looked for without effect
	missed   time.Time // when that was
}

// version has the keys of a version. records is nil once the version is retired.
type version struct{ records, values []byte }

// CheckKeys returns an error unless text has usable key-encryption keys, one per line. The first one wraps.
// Text may be empty.
func CheckKeys(text string) error {
	_, err := parseKeys(text)
	return err
}

func parseKeys(text string) (out []wrapping, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case len(line) < minKey:
			return nil, errs.Field(Field, "must have at least %d characters in each line: write one into a file (openssl rand -hex 32 > FILE) and pass --seal-key-file FILE", minKey)
		case len(out) == maxKeys:
			return nil, errs.Field(Field, "must have at most %d lines: remove those that wrap no version any more", maxKeys)
		}
		out = append(out, wrapping{id: hex.EncodeToString(derive([]byte(line), "orrery/seal/id", 6)), key: []byte(line)})
	}
	return out, nil
}

// NewRing returns a ring. secret is the cluster secret, keys the key-encryption keys (see CheckKeys); either
// may be empty. load reads the keyring: NotFound if it does not exist.
func NewRing(secret, keys string, load func(context.Context) (account.Keyring, error)) (*Ring, error) {
	parsed, err := parseKeys(keys)
	return &Ring{secret: secret, keys: parsed, load: load}, err
}

// Only returns the ring of a cluster without a keyring, which a secret seals.
func Only(secret string) *Ring { return &Ring{secret: secret} }

// KeyIDs returns the IDs of the key-encryption keys, the wrapping one first.
func (r *Ring) KeyIDs() (ids []string) {
	for _, k := range r.keys {
		ids = append(ids, k.id)
	}
	return ids
}

// Records returns the box of a kind of record: it is sealed again when a version is replaced.
func (r *Ring) Records(kind string) Box { return Box{ring: r, kind: kind} }

// Values returns the box of a kind of value that is never sealed again.
func (r *Ring) Values(kind string) Box { return Box{ring: r, kind: kind, values: true} }

// Rev returns the revision of the keyring that the ring knows; 0 if it knows none.
func (r *Ring) Rev() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rev
}

// Load reads the keyring. Invalid, with the field of the key-encryption keys, if none of them unwraps it.
// A cluster without a keyring is no error.
func (r *Ring) Load(ctx context.Context) (account.Keyring, error) {
	if r.load == nil {
		return account.Keyring{}, nil
	}
	k, err := r.load(ctx)
	if errs.Is(err, errs.NotFound) {
		k, err = account.Keyring{}, nil
	}
	if err == nil {
		err = r.Use(k)
	}
	return k, errs.Wrap("seal.Load", err)
}

// Use makes the ring know a keyring, which may be an older one, of a backup that was restored. The zero value
// means that the cluster secret seals.
func (r *Ring) Use(k account.Keyring) error {
	opened := make(map[string]version, len(k.Versions))
	for _, v := range k.Versions {
		keys, err := r.unwrap(v)
		if err != nil {
			return err
		}
		opened[v.ID] = keys
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, before := range r.versions { // a value that was read before its version was retired can be opened
		now, ok := opened[id]
		if !ok {
			now = before
		}
		if now.records == nil {
			now.records = before.records
		}
		opened[id] = now
	}
	r.rev, r.now, r.versions = k.ModRev, k.Current, opened
	return nil
}

func (r *Ring) unwrap(v account.KeyVersion) (out version, err error) {
	n := slices.IndexFunc(r.keys, func(k wrapping) bool { return k.id == v.WrappedBy })
	switch {
	case len(r.keys) == 0:
		return out, errs.Field(Field, "is missing: this cluster's sealing keys are wrapped by the key %s; pass the key file of the cluster's gateways (--seal-key-file FILE)", v.WrappedBy)
	case n < 0:
		return out, errs.Field(Field, "has the keys %s, and this cluster's sealing keys are wrapped by the key %s: use the key file of the cluster's gateways, or add the previous key as its second line",
			strings.Join(r.KeyIDs(), ", "), v.WrappedBy)
	}
	ok := true
	open := func(class string, wrapped []byte) []byte {
		plain, opened := Box{kind: wrapKind, about: "\x00" + v.ID + "\x00" + class}.open(r.keys[n].key, wrapped)
		ok = ok && opened
		return plain
	}
	if !v.Retired() {
		out.records = open(recordsClass, v.Records)
	}
	if out.values = open(valuesClass, v.Values); !ok {
		return out, errs.Field(Field, "does not unwrap version %s of this cluster's sealing keys, whose record was changed: restore etcd from a backup", v.ID)
	}
	return out, nil
}

const (
	wrapKind     = "wrap"
	recordsClass = "records"
	valuesClass  = "values"
)

// Next returns the keyring after before, with one more version, which is current, and all versions wrapped
// by the first key-encryption key. The ring must know before. Invalid without a key-encryption key,
// Exhausted if there are too many versions.
func (r *Ring) Next(before account.Keyring, now time.Time) (account.Keyring, error) {
	switch {
	case len(r.keys) == 0:
		return before, errs.Field(Field, "is missing: write a key into a file (openssl rand -hex 32 > FILE), pass it to all gateways and template services, and to agents with the cluster secret (--seal-key-file FILE), and restart them")
	case len(before.Versions) >= account.MaxKeyVersions:
		return before, errs.New(errs.Exhausted, "there are %d versions of the sealing key, the most there may be", len(before.Versions))
	}
	id := make([]byte, 5)
	_, _ = rand.Read(id) // never fails
	fresh := version{records: make([]byte, 32), values: make([]byte, 32)}
	_, _ = rand.Read(fresh.records)
	_, _ = rand.Read(fresh.values)
	v := account.KeyVersion{ID: strings.ToLower(base32.StdEncoding.EncodeToString(id))[:idBytes], CreatedAt: now.UTC()}
	next := account.Keyring{Current: v.ID, Resealing: true}
	var err error
	if next.Versions, err = r.wrapAll(before.Versions); err != nil {
		return before, err
	}
	next.Versions = append(next.Versions, r.wrap(v, fresh))
	return next, nil
}

// Retire returns the keyring after before, in which only the current version opens records.
func (r *Ring) Retire(before account.Keyring) (next account.Keyring, err error) {
	next = before
	next.Resealing = false
	if next.Versions, err = r.wrapAll(before.Versions); err != nil {
		return before, err
	}
	for i := range next.Versions {
		if v := &next.Versions[i]; v.ID != next.Current {
			v.Records = nil
		}
	}
	return next, nil
}

func (r *Ring) wrapAll(all []account.KeyVersion) (out []account.KeyVersion, err error) {
	for _, v := range all {
		keys, err := r.unwrap(v)
		if err != nil {
			return nil, err
		}
		out = append(out, r.wrap(v, keys))
	}
	return out, nil
}

func (r *Ring) wrap(v account.KeyVersion, keys version) account.KeyVersion {
	v.WrappedBy = r.keys[0].id
	wrap := func(class string, key []byte) []byte {
		return Box{ring: &Ring{secret: string(r.keys[0].key)}, kind: wrapKind, about: "\x00" + v.ID + "\x00" + class}.Seal(key)
	}
	v.Records = nil
	if keys.records != nil {
		v.Records = wrap(recordsClass, keys.records)
	}
	v.Values = wrap(valuesClass, keys.values)
	return v
}

// Current returns the version that seals; empty without a keyring.
func (r *Ring) Current() string {
	id, _ := r.current(false)
	return id
}

// current returns the key that seals, and its version; no version without a keyring.
func (r *Ring) current(values bool) (id string, key []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == "" {
		return "", []byte(r.secret)
	}
	return r.now, r.versions[r.now].of(values)
}

func (v version) of(values bool) []byte {
	if values {
		return v.values
	}
	return v.records
}

// version returns the key of a version. It reads the keyring again if the version is not known. NotFound if
// the cluster has no such version, Unavailable if the keyring cannot be read.
func (r *Ring) version(id string, values bool) ([]byte, error) {
	known := func() []byte {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.versions[id].of(values)
	}
	if key := known(); key != nil {
		return key, nil
	}
	if r.load == nil || !r.mayTry(id) {
		return nil, noVersion(id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
	defer cancel()
	if _, err := r.Load(ctx); err != nil {
		return nil, err
	}
	if key := known(); key != nil {
		return key, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing, r.missed = id, time.Now()
	return nil, noVersion(id)
}

func (r *Ring) mayTry(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing != id || time.Since(r.missed) >= reloadPause
}

func noVersion(id string) error {
	return errs.New(errs.NotFound, "there is no version %s of the sealing key", id)
}
