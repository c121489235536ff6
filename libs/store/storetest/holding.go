package storetest

import (
	"bytes"
	"slices"
	"testing"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Holding returns the keys that contain a text in their key or value, now or in any revision of
// the available history. Tests use it to check what must never be stored.
func Holding(t testing.TB, endpoint, text string) (keys []string) {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	now, err := cli.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	last := now.Header.Revision
	from := int64(1)
	for events, heard := cli.Watch(t.Context(), "", clientv3.WithPrefix(), clientv3.WithRev(from)), int64(0); heard < last; {
		batch, ok := <-events
		switch {
		case !ok:
			t.Fatal("the watch ended early")
		case batch.CompactRevision > from: // the history before is compacted
			from = batch.CompactRevision
			events = cli.Watch(t.Context(), "", clientv3.WithPrefix(), clientv3.WithRev(from))
			continue
		case batch.Err() != nil:
			t.Fatal(batch.Err())
		}
		for _, e := range batch.Events {
			heard = max(heard, e.Kv.ModRevision)
			if bytes.Contains(e.Kv.Value, []byte(text)) || bytes.Contains(e.Kv.Key, []byte(text)) {
				keys = append(keys, string(e.Kv.Key))
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
