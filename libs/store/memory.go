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
)

// Memory keeps records of what was done, so that it is not done twice when it is asked for
// again. A record is written in the transaction that does it, and goes by itself with a
// lease that those of some time share. Past a number the oldest go early, of those who have the
// most: nobody has another's forgotten. Make it with NewMemory; it is safe for concurrent use.
type Memory struct {
	client *Client
	prefix string
	cfg    MemoryConfig

	mu      sync.Mutex
	lease   Lease
	granted time.Time // zero: there is no lease
	made    int       // records of this process
}

// MemoryConfig says how long what is remembered; all of it is required.
type MemoryConfig struct {
	// Life is how long a record stays at least, Together for how long those of one process
	// share a lease.
	Life, Together time.Duration
	// Most is about how many there may be: each process looks after every tenth part of
	// it that it has made itself.
	Most int
	Now  func() time.Time
	// Forgot is told when records go early, of how many.
	Forgot func(early, all int)
}

// NewMemory is the memory under a prefix.
func NewMemory[T any](c *Client, p Prefix[T], cfg MemoryConfig) *Memory {
	return &Memory{client: c, prefix: p.String(), cfg: cfg}
}

// ownerLength is the length of what tells owners apart in names, and ownerEnd what is behind it.
const (
	ownerLength = 12
	ownerEnd    = "x"
)

// OwnedName is what something of an owner is remembered by: a name of letters and digits, with
// as many in front of it that tell whose it is. Names that are none of these, and have no small
// x, are all of one owner more.
func OwnedName(owner, name string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:])[:ownerLength] + ownerEnd + name
}

// ownerOf is whose a name is.
func ownerOf(name string) string {
	owner, _, owned := strings.Cut(name, ownerEnd)
	if !owned {
		return ""
	}
	return owner
}

// Remember is the write that remembers something under a key of the memory's prefix: a second
// one of that key is refused. The transaction is Fenced without a LostError when the lease
// has ended, because this process or etcd was stopped for long: call Renew and try again.
func Remember[T any](ctx context.Context, m *Memory, k Key[T], v T) (Write, error) {
	if err := m.forgetOldest(ctx); err != nil {
		return Write{}, errs.Wrap("store.Remember", err)
	}
	lease, err := m.current(ctx)
	return CreateOn(lease, k, v), errs.Wrap("store.Remember", err)
}

// Renew has the next record ask for another lease.
func (m *Memory) Renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.granted = time.Time{}
}

// current is the lease that records go with now.
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

// due counts a record, and reports whether the number of all is to be looked at.
func (m *Memory) due() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	due := m.made%max(1, m.cfg.Most/10) == 0
	m.made++
	return due
}

// forgetAtOnce bounds the removals of one transaction.
const forgetAtOnce = 100

// forgetOldest makes room before there are too many.
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
		if _, err := m.client.Commit(ctx, t); err != nil && !errs.Is(err, errs.Conflict) { // others forget too
			return err
		}
	}
	return nil
}

// beyondShares are so many of all, which are in order, or all when there are fewer: the first
// ones of the owners who have more than a share, the largest that has so many beyond it.
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

// Rewrite is the write that puts something in place of what is remembered under a key since
// modRev. It goes with the lease that records go with now.
func Rewrite[T any](ctx context.Context, m *Memory, k Key[T], v T, modRev int64) (Write, error) {
	lease, err := m.current(ctx)
	return ReplaceOn(lease, k, v, modRev), errs.Wrap("store.Rewrite", err)
}
