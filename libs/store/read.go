package store

import (
	"cmp"
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// listPage is the size of the first page of a range read, in keys. Larger prefixes are read in pages at
	// one revision.
	listPage = 2000
	// The next page has as many keys as the last one suggests for pageBytes, at most twice as many as that, and
	// at most maxPage.
	pageBytes, maxPage = 8 << 20, 32_000
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

// ListEntries is List with the keys of the records.
func ListEntries[T any](ctx context.Context, c *Client, p keys.Prefix[T]) ([]Entry[T], error) {
	sound, damaged, err := ListSound(ctx, c, p)
	if err == nil && len(damaged) > 0 {
		err = damaged[0].Err
	}
	if err != nil {
		return nil, errs.Wrap("store.ListEntries", err)
	}
	return sound, nil
}

// Damaged is a record that cannot be decoded. Name is its key relative to the prefix.
type Damaged struct {
	Name   string
	ModRev int64
	Err    error
}

// ListSound is ListEntries, but a record that cannot be decoded does not fail the whole list.
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

// getter is Client.get or Client.persist.
type getter func(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)

// persist is get for callers that retry until they get an answer; see contact.
func (c *Client) persist(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	answered := c.contact.asking()
	resp, err := c.get(ctx, key, opts...)
	answered(wrap("store.persist", err))
	return resp, err
}

// list reads a prefix, at the given revision, or at the current one if rev is 0.
func (c *Client) list(ctx context.Context, prefix string, rev int64, get getter) (out []KeyValue, _ int64, _ error) {
	rev, err := c.pages(ctx, prefix, rev, get, (*collected)(&out))
	return out, rev, err
}

// collected is a list in one piece.
type collected []KeyValue

func (c *collected) Begin(keys int) { *c = make([]KeyValue, 0, keys) }

func (c *collected) Page(kvs []KeyValue) { *c = append(*c, kvs...) }

// receiver is the part of Pager for a list.
type receiver interface {
	Begin(keys int)
	Page(kvs []KeyValue)
}

// pages reads a prefix and delivers it page by page, in key order. It requests the next page while it delivers
// one. Errors are those of list.
//
// etcd counts all keys of a range for each page of it, so that many small pages of a long range take
// quadratic time. Therefore pages grow, and once a page is full of keys with the same first segment after
// the prefix, such as all instances, the range ends with that segment.
func (c *Client) pages(ctx context.Context, prefix string, rev int64, get getter, to receiver) (int64, error) {
	whole := clientv3.GetPrefixRangeEnd(prefix)
	key, end, limit := prefix, whole, int64(listPage)
	type answer struct {
		*clientv3.GetResponse
		err error
	}
	read := func() <-chan answer {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(rev)}
		got, from := make(chan answer, 1), key
		go func() {
			resp, err := get(ctx, from, opts...)
			got <- answer{resp, err}
		}()
		return got
	}
	for next, first := read(), true; next != nil; first = false {
		resp := <-next
		if resp.err != nil {
			return 0, wrap("store.pages", resp.err)
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		page, size := make([]KeyValue, 0, len(resp.Kvs)), 0
		for _, kv := range resp.Kvs {
			page, size = append(page, raw(kv)), size+len(kv.Value)
		}
		if first {
			to.Begin(int(resp.Count))
		}
		next = nil
		switch {
		case resp.More:
			last := page[len(page)-1].Key
			if key = last + "\x00"; end == whole {
				end = cmp.Or(commonEnd(prefix, page[0].Key, last), whole)
			}
			limit = max(listPage, min(2*limit, maxPage, limit*pageBytes/int64(max(1, size))))
			next = read()
		case end != whole:
			key, end, limit = end, whole, listPage
			next = read()
		}
		to.Page(page)
	}
	return rev, nil
}

// commonEnd returns the end of the keys with the same first segment after a prefix as two keys have, "" if
// they differ in it.
func commonEnd(prefix, one, other string) string {
	segment, _, more := strings.Cut(one[len(prefix):], "/")
	if common := prefix + segment + "/"; more && strings.HasPrefix(other, common) {
		return clientv3.GetPrefixRangeEnd(common)
	}
	return ""
}
