package command

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// noted returns a summary of the audit log. Shutdowns of nodes are sorted because they run
// concurrently.
func (w *world) noted() (out []string) {
	w.t.Helper()
	entries, _, err := store.List(w.t.Context(), w.store, keys.AuditLog())
	if err != nil {
		w.t.Fatal(err)
	}
	first := 0
	for _, e := range entries {
		out = append(out, strings.TrimSpace(e.Action+" "+e.ResourceID+" "+e.Failure))
		if e.Action == "node.shutdown" {
			slices.Sort(out[first:])
		} else {
			first = len(out)
		}
	}
	return out
}

func TestTheWholeClusterIsShutDownNodesFirstAndThisGatewayLast(t *testing.T) {
	w := newWorld(t)
	w.commit(slices.Concat(fleetOfOne(), connected("node-3"), gatewaysOf("g-1", "g-2", "g-3", "g-4"))...)
	w.node.unheard = map[fleet.NodeID]error{"node-1": errNobody, "node-3": errBroken}
	told := w.transcript("cluster shutdown", "cluster shutdown now")
	if len(w.node.shut) > 0 || len(w.asked) > 0 {
		t.Fatalf("shut down without a confirmation: %v, %v", w.node.shut, w.asked)
	}
	told += w.transcript("cluster shutdown confirm")
	if len(w.asked) > 0 {
		t.Errorf("the gateways %v end though nodes run on", w.asked)
	}
	w.node.unheard, w.unheard = nil, map[string]error{"g-2": errNobody, "g-4": errBroken}
	told += w.transcript("cluster shutdown confirm")
	golden(t, "shutdown", told)
	slices.Sort(w.node.shut)
	if got := strings.Join(append(w.node.shut, w.asked...), ", "); got != "node-1: cluster shutdown, node-3: cluster shutdown, g-3, g-1" {
		t.Errorf("asked %s", got)
	}
	want := []string{
		"node.shutdown node-1", "node.shutdown node-1 the agent of node node-1 does not answer now: retry in a moment",
		"node.shutdown node-3", "node.shutdown node-3 the agent of node node-3 does not answer now: retry in a moment",
		"system.shutdown g-2 it does not answer", "system.shutdown g-3", "system.shutdown g-4 it does not answer", "system.shutdown g-1", "command.execute cluster shutdown",
	}
	if noted := w.noted(); !slices.Equal(noted, want) {
		t.Errorf("noted %q, want %q", noted, want)
	}
}

func TestAClusterThatIsShutDownUnderAKeyIsOneRequest(t *testing.T) {
	for name, c := range map[string]struct {
		unheard map[fleet.NodeID]error
		asked   string
		begun   bool
	}{
		"all end":              {nil, "node-1 node-3 node-4 g-1", true},
		"one is not reached":   {map[fleet.NodeID]error{"node-3": errNobody}, "node-1 node-4", true},
		"one may have heard":   {map[fleet.NodeID]error{"node-1": errNobody, "node-3": errBroken, "node-4": errNobody}, "", true},
		"nobody heard of it":   {map[fleet.NodeID]error{"node-1": errNobody, "node-3": errNobody, "node-4": errNobody}, "", false},
		"there are none there": {nil, "g-1", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if name != "there are none there" {
				w.commit(slices.Concat(connected("node-1"), connected("node-3"), connected("node-4"))...)
			}
			w.node.unheard = c.unheard
			once := &txn.Once{Name: "k", Request: "r"}
			said, err := w.runIn(txn.CarriedOut(t.Context(), once), "cluster shutdown confirm")
			if failed := c.unheard != nil; (err != nil) != failed {
				t.Errorf("%v: %q", err, said)
			}
			if once.Beaten() || once.Made() != c.begun {
				t.Errorf("beaten by itself: %t; begun: %t, want %t", once.Beaten(), once.Made(), c.begun)
			}
			var asked []string
			for _, s := range w.node.shut {
				id, _, _ := strings.Cut(s, ":")
				asked = append(asked, id)
			}
			slices.Sort(asked)
			if got := strings.Join(append(asked, w.asked...), " "); got != c.asked {
				t.Errorf("asked %q, want %q: %q", got, c.asked, said)
			}
			ops, _, err := store.List(t.Context(), w.store, keys.Operations())
			if err != nil || (len(ops) > 0) != c.begun || c.begun && ops[0].Action != "system.shutdown" {
				t.Errorf("remembered %+v: %v", ops, err)
			}
		})
	}
}

func TestWhoLeavesInTheMiddleOfAShutdownLeavesNothingHalfDone(t *testing.T) {
	w := newWorld(t)
	w.commit(slices.Concat(connected("node-1"), connected("node-2"), gatewaysOf("g-1", "g-2", "g-3"))...)
	gone := errors.New("the client is gone")
	for n := range 6 { // the command prints six lines
		w.node.shut, w.asked = nil, nil
		said := 0
		err := w.console.Run(t.Context(), Session{By: txn.Actor{User: w.who.User}, Who: w.who, Say: func(string) error {
			if said++; said > n {
				return gone
			}
			return nil
		}}, "cluster shutdown confirm")
		if !errors.Is(err, gone) || said != n+1 {
			t.Errorf("after %d lines: %v, and %d lines were said", n, err, said)
		}
		w.wholly(n)
	}
	w.node.shut, w.asked = nil, nil
	ctx, leave := context.WithCancel(t.Context())
	w.node.meanwhile = leave // closing the console cancels its commands
	said, err := w.runIn(ctx, "cluster shutdown confirm")
	if err != nil || len(said) != 6 {
		t.Errorf("%q: %v", said, err)
	}
	w.wholly(-1)
	if noted := w.noted(); len(noted) != 7*6 || noted[len(noted)-1] != "command.execute cluster shutdown" {
		t.Errorf("noted %q", noted)
	}
}

// wholly checks that a shutdown reached two nodes and then all three gateways although its reader left
// after n lines.
func (w *world) wholly(n int) {
	w.t.Helper()
	if len(w.node.shut) != 2 || strings.Join(w.asked, " ") != "g-2 g-3 g-1" {
		w.t.Errorf("after %d lines: asked %v and %v", n, w.node.shut, w.asked)
	}
}

func TestWhatIsCarriedThroughEndsAWhileAfterWhoTypedItHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		typed, leave := context.WithCancel(t.Context())
		ctx, done := outlasting(typed, time.Minute)
		defer done()
		<-time.After(time.Hour)
		if ctx.Err() != nil {
			t.Error("it ends though nobody has gone")
		}
		leave()
		gone := time.Now()
		if <-ctx.Done(); time.Since(gone) != time.Minute {
			t.Errorf("it ends after %v", time.Since(gone))
		}
		other, done := outlasting(typed, time.Minute)
		if done(); other.Err() == nil {
			t.Error("it goes on when all is done")
		}
	})
}
