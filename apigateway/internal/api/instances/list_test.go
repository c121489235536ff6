package instances

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestNothingIsKeptUnderAFilterThatNoInstanceHas(t *testing.T) {
	long := strings.Repeat("x", maxFilter+1)
	for what, f := range map[string]instanceFilter{"group": {group: fleet.GroupName(long)}, "node": {node: fleet.NodeID(long)}, "state": {state: long}} {
		h := newViewCache(nil)
		h.order, h.pages = nil, nil
		if got := string(h.page(nil, f, server.Wanted{Number: 1, Size: 7}, time.Now()).Plain); got != `{"data":[],"page":1,"pageSize":7,"total":0}` {
			t.Errorf("a %s that is too long: %s", what, got)
		}
	}
}
