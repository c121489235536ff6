package store

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/pages"
)

// Get reads one record with a linearizable read. The error is NotFound if the key does not exist.
func Get[T any](ctx context.Context, c *Client, k keys.Key[T]) (T, error) {
	var zero T
	resp, err := c.get(ctx, k.String())
	if err != nil {
		return zero, wrap("store.Get", err)
	}
	if len(resp.Kvs) == 0 {
		return zero, &errs.Error{Op: "store.Get", Kind: errs.NotFound, Message: k.String() + " does not exist"}
	}
	return Decode[T](raw(resp.Kvs[0]))
}

// List reads all records under a prefix at one revision, in key order, and returns that revision.
func List[T any](ctx context.Context, c *Client, p keys.Prefix[T]) ([]T, int64, error) {
	kvs, rev, err := c.list(ctx, p.String(), 0, c.get)
	if err != nil {
		return nil, 0, errs.Wrap("store.List", err)
	}
	out, err := decodeAll[T](kvs)
	return out, rev, err
}

// Entry is a record with its key, relative to the listed prefix.
type Entry[T any] struct {
	Name   string
	Record T
}

// Damaged is a record that cannot be decoded. Name is its key relative to the prefix.
type Damaged struct {
	Name   string
	ModRev int64
	Err    error
}

// ListSound is List with the keys of the records, but a record that cannot be decoded does not fail the whole list.
func ListSound[T any](ctx context.Context, c *Client, p keys.Prefix[T]) (sound []Entry[T], damaged []Damaged, err error) {
	kvs, _, err := c.list(ctx, p.String(), 0, c.get)
	if err != nil {
		return nil, nil, errs.Wrap("store.ListSound", err)
	}
	sound = make([]Entry[T], 0, len(kvs))
	for _, kv := range kvs {
		name := strings.TrimPrefix(kv.Key, p.String())
		v, err := Decode[T](kv)
		if err != nil {
			damaged = append(damaged, Damaged{Name: name, ModRev: kv.ModRev, Err: err})
			continue
		}
		sound = append(sound, Entry[T]{name, v})
	}
	return sound, damaged, nil
}

// ListAt is List at a revision that another List has just returned.
func ListAt[T any](ctx context.Context, c *Client, p keys.Prefix[T], rev int64) ([]T, error) {
	kvs, _, err := c.list(ctx, p.String(), rev, c.get)
	if err != nil {
		return nil, errs.Wrap("store.ListAt", err)
	}
	return decodeAll[T](kvs)
}

// ListPart reads at most n records under a prefix, in key order from index from, and returns the
// total number. n must be positive. Of the other records only the keys are read.
func ListPart[T any](ctx context.Context, c *Client, p keys.Prefix[T], from, n int) (part []T, total int, err error) {
	names, rev, err := c.list(ctx, p.String(), 0, func(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		return c.get(ctx, key, append(opts, clientv3.WithKeysOnly())...)
	})
	if err != nil {
		return nil, 0, errs.Wrap("store.ListPart", err)
	}
	if from < 0 || from >= len(names) {
		return nil, len(names), nil
	}
	end := clientv3.GetPrefixRangeEnd(p.String())
	resp, err := c.get(ctx, names[from].Key, clientv3.WithRange(end), clientv3.WithLimit(int64(n)), clientv3.WithRev(rev))
	if err != nil {
		return nil, 0, wrap("store.ListPart", err)
	}
	kvs := make([]KeyValue, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		kvs = append(kvs, raw(kv))
	}
	part, err = decodeAll[T](kvs)
	return part, len(names), err
}

// GetAll reads records at one revision, in the order of keys, and leaves out those that do not
// exist. keys has at most MaxOps elements.
func GetAll[T any](ctx context.Context, c *Client, keys []keys.Key[T]) ([]T, error) {
	reads := make([]clientv3.Op, len(keys))
	for i, k := range keys {
		reads[i] = clientv3.OpGet(k.String())
	}
	before := c.line.now()
	resp, err := c.etcd.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return nil, wrap("store.GetAll", err)
	}
	c.saw(before, resp.Header)
	var kvs []KeyValue
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			kvs = append(kvs, raw(kv))
		}
	}
	return decodeAll[T](kvs)
}

func decodeAll[T any](kvs []KeyValue) ([]T, error) {
	out := make([]T, 0, len(kvs))
	for _, kv := range kvs {
		v, err := Decode[T](kv)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// Count returns the number of records under a prefix without reading them.
func Count[T any](ctx context.Context, c *Client, p keys.Prefix[T]) (int, error) {
	resp, err := c.get(ctx, p.String(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, wrap("store.Count", err)
	}
	return int(resp.Count), nil
}

// persist is get for callers that retry until they get an answer; see contact.
func (c *Client) persist(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	answered := c.contact.asking()
	resp, err := c.get(ctx, key, opts...)
	answered(wrap("store.persist", err))
	return resp, err
}

// list reads a prefix in one piece; see pages.
func (c *Client) list(ctx context.Context, prefix string, rev int64, get pages.Getter) (out []KeyValue, _ int64, _ error) {
	rev, err := c.pages(ctx, prefix, rev, get, (*collected)(&out))
	return out, rev, err
}

// pages reads a prefix at the given revision, or at the current one if rev is 0. get is Client.get or
// Client.persist.
func (c *Client) pages(ctx context.Context, prefix string, rev int64, get pages.Getter, to pages.Receiver[KeyValue]) (int64, error) {
	rev, err := pages.Read(ctx, get, prefix, rev, raw, to)
	return rev, wrap("store.pages", err)
}

// collected is a list in one piece.
type collected []KeyValue

func (c *collected) Begin(keys int) { *c = make([]KeyValue, 0, keys) }

func (c *collected) Page(kvs []KeyValue) { *c = append(*c, kvs...) }
