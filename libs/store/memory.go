package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Memory stores records of completed operations, so that a retry does not repeat them. A record is
// written in the transaction of its operation and expires with a lease that records of about the
// same age share. Beyond a maximum, the oldest records of the owners with the most records are
// removed early. Create it with NewMemory. It is safe for concurrent use.
type Memory struct {
	client *Client
	prefix string
	cfg    MemoryConfig

	mu      sync.Mutex
	lease   Lease
	granted time.Time // zero without a lease
	made    int       // records of this process
}

// MemoryConfig configures a Memory. All fields are required.
type MemoryConfig struct {
	// Life is the minimum lifetime of a record. Together is how long the records of one process
	// share a lease.
	Life, Together time.Duration
	// Most is the approximate maximum number of records. Each process checks it after it has
	// created a tenth of it.
	Most int
	Now  func() time.Time
	// Forgot is called when records are removed early: early of all.
	Forgot func(early, all int)
}

// NewMemory returns the memory under a prefix.
func NewMemory[T any](c *Client, p keys.Prefix[T], cfg MemoryConfig) *Memory {
	return &Memory{client: c, prefix: p.String(), cfg: cfg}
}

// ownerLength is the length of the owner part of a name, ownerEnd separates it from the rest.
const (
	ownerLength = 12
	ownerEnd    = "x"
)

// OwnedName returns the record name of something that belongs to an owner: a hash of the owner,
// and the name, which consists of letters and digits. Names of another form, without a lower-case
// x, all count as those of one further owner.
func OwnedName(owner, name string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:])[:ownerLength] + ownerEnd + name
}

// ownerOf returns the owner part of a name.
func ownerOf(name string) string {
	owner, _, owned := strings.Cut(name, ownerEnd)
	if !owned {
		return ""
	}
	return owner
}

// Remember returns the write that stores a record under a key of the memory's prefix. A second one
// for the same key is refused. The transaction fails with Fenced without a LostError if the lease
// has expired, because this process or etcd was stopped for long: call Renew and retry.
func Remember[T any](ctx context.Context, m *Memory, k keys.Key[T], v T) (Write, error) {
	if err := m.forgetOldest(ctx); err != nil {
		return Write{}, errs.Wrap("store.Remember", err)
	}
	lease, err := m.current(ctx)
	return CreateOn(lease, k, v), errs.Wrap("store.Remember", err)
}

// Renew makes the next record request a new lease.
func (m *Memory) Renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.granted = time.Time{}
}

// current returns the lease for new records.
func (m *Memory) current(ctx context.Context) (Lease, error) {
	now := m.cfg.Now()
	m.mu.Lock()
	lease, fresh := m.lease, !m.granted.IsZero() && now.Sub(m.granted) < m.cfg.Together
	m.mu.Unlock()
	if fresh {
		return lease, nil
	}
	lease, err := m.client.Grant(ctx, m.cfg.Life+m.cfg.Together)
	if err != nil {
		return lease, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lease, m.granted = lease, now
	return lease, nil
}

// due counts a record and reports whether the total number should be checked.
func (m *Memory) due() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.made%max(1, m.cfg.Most/10) == 0
	m.made++
	return due
}

// forgetAtOnce bounds the removals of one transaction.
const forgetAtOnce = 100

// forgetOldest removes records if there are too many.
func (m *Memory) forgetOldest(ctx context.Context) error {
	if !m.due() {
		return nil
	}
	resp, err := m.client.get(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return wrap("store.forgetOldest", err)
	}
	all := int(resp.Count)
	early := all - m.cfg.Most + max(1, m.cfg.Most/10)
	if all < m.cfg.Most {
		return nil
	}
	resp, err = m.client.get(ctx, m.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return wrap("store.forgetOldest", err)
	}
	going := beyondShares(resp.Kvs, early, func(kv *mvccpb.KeyValue) string { return ownerOf(string(kv.Key[len(m.prefix):])) })
	m.cfg.Forgot(len(going), all)
	for part := range slices.Chunk(going, forgetAtOnce) {
		var t Txn
		for _, kv := range part {
			t.Writes = append(t.Writes, Write{key: string(kv.Key), remove: true, modRev: kv.ModRevision})
		}
		if _, err := m.client.Commit(ctx, t); err != nil && !errs.Is(err, errs.Conflict) { // other processes remove records too
			return err
		}
	}
	return nil
}

// beyondShares returns many elements of all: the first ones of the owners that have more than a
// share. The share is the largest one for which enough elements exceed it.
func beyondShares[T any](all []T, many int, ownerOf func(T) string) (out []T) {
	has := map[string]int{}
	for _, one := range all {
		has[ownerOf(one)]++
	}
	tooLarge := sort.Search(len(all), func(share int) bool {
		beyond := 0
		for _, n := range has {
			beyond += max(0, n-share)
		}
		return beyond < many
	})
	for _, one := range all {
		if owner := ownerOf(one); has[owner] >= tooLarge && len(out) < many {
			has[owner]--
			out = append(out, one)
		}
	}
	return out
}

// Rewrite returns the write that replaces the record under a key, unchanged since modRev. The
// record moves to the current lease.
func Rewrite[T any](ctx context.Context, m *Memory, k keys.Key[T], v T, modRev int64) (Write, error) {
	lease, err := m.current(ctx)
	return ReplaceOn(lease, k, v, modRev), errs.Wrap("store.Rewrite", err)
}
