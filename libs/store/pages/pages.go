// Package pages reads large ranges of etcd.
package pages

import (
	"cmp"
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// firstPage is the size of the first page of a range, in keys.
	firstPage = 2000
	// The next page has as many keys as the last one suggests for pageBytes, at most twice as many as that, and
	// at most maxPage.
	pageBytes, maxPage = 8 << 20, 32_000
)

// Getter is clientv3.KV.Get, or something around it.
type Getter func(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)

// Receiver takes a range in pages.
type Receiver[T any] interface {
	// Begin announces the number of keys before the first page.
	Begin(keys int)
	// Page delivers a page, in key order.
	Page([]T)
}

// Read reads a prefix at a revision, or at the current one if rev is 0, and returns the revision. It requests
// the next page while it delivers one, in the form of convert. Errors are those of get.
//
// etcd counts all keys of a range for each page of it, so that many small pages of a long range take
// quadratic time. Therefore pages grow, and once a page is full of keys with the same first segment after
// the prefix, such as all instances, the range ends with that segment.
func Read[T any](ctx context.Context, get Getter, prefix string, rev int64, convert func(*mvccpb.KeyValue) T, to Receiver[T]) (int64, error) {
	whole := clientv3.GetPrefixRangeEnd(prefix)
	key, end, limit := prefix, whole, int64(firstPage)
	type answer struct {
		*clientv3.GetResponse
		err error
	}
	request := func() <-chan answer {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(rev)}
		got, from := make(chan answer, 1), key
		go func() {
			resp, err := get(ctx, from, opts...)
			got <- answer{resp, err}
		}()
		return got
	}
	for next, first := request(), true; next != nil; first = false {
		resp := <-next
		if resp.err != nil {
			return 0, resp.err
		}
		if first {
			rev = cmp.Or(rev, resp.Header.Revision)
			to.Begin(int(resp.Count))
		}
		next = nil
		switch page := resp.Kvs; {
		case resp.More:
			last := string(page[len(page)-1].Key)
			if key = last + "\x00"; end == whole {
				end = cmp.Or(commonEnd(prefix, string(page[0].Key), last), whole)
			}
			limit = max(firstPage, min(2*limit, maxPage, limit*pageBytes/sizeOf(page)))
			next = request()
		case end != whole:
			key, end, limit = end, whole, firstPage
			next = request()
		}
		page := make([]T, len(resp.Kvs))
		for n, kv := range resp.Kvs {
			page[n] = convert(kv)
		}
		to.Page(page)
	}
	return rev, nil
}

// sizeOf returns the size of a page in bytes.
func sizeOf(page []*mvccpb.KeyValue) (size int64) {
	for _, kv := range page {
		size += int64(len(kv.Key) + len(kv.Value))
	}
	return size
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
