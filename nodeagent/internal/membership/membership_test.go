package membership

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = fleet.NodeID("node-1")

// An operator may delete the node after it was looked for and before the session is
// open: then it would live on, marked as deleted, and nobody would end the mark.
func TestANodeThatIsDeletedWhileItJoinsDoesNotJoin(t *testing.T) {
	for _, cordoned := range []bool{false, true} { // with and without a wish of an operator before
		client := storetest.New(t)
		ctx := t.Context()
		var rev int64
		if cordoned {
			var err error
			if rev, err = client.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(store.NodeDesiredKey(node), fleet.NodeDesired{Node: node, Cordoned: true})}}); err != nil {
				t.Fatal(err)
			}
		}
		record := fleet.Node{ID: node, DataUUID: "uuid"}
		left, err := store.OpenSession(ctx, client, store.NodeSessionKey(node), fleet.NodeSession{Node: node, DataUUID: "uuid", Holder: "lock"}, time.Minute, false)
		if err != nil {
			t.Fatal(err)
		}
		left.Abandon()
		m := New(Config{Store: client, Record: record, Holder: "lock", Log: slog.New(slog.DiscardHandler), Joining: func() error {
			_, err := client.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(store.NodeDesiredKey(node), fleet.NodeDesired{Node: node, Deleted: true}, rev)}})
			return err
		}})
		s, _, err := m.join(ctx)
		if s != nil {
			s.Close(ctx)
		}
		if !errs.Is(err, errs.Unavailable) {
			t.Errorf("joined though it was deleted meanwhile: %v, want to be told to try again", err)
		}
		if _, _, err := m.join(ctx); !errs.Is(err, errs.Unavailable) {
			t.Errorf("joined while its deletion is under way: %v", err)
		}
	}
}
