package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMaintenanceInForce(t *testing.T) {
	own := Maintenance{On: true, Message: "here", Bypass: []string{"ann", "bob"}}
	all := Maintenance{On: true, Message: "everywhere", Bypass: []string{"bob", "eve"}}
	off := func(m Maintenance) Maintenance { m.On = false; return m }
	for name, c := range map[string]struct{ own, all, want Maintenance }{
		"neither is on":                           {off(own), off(all), off(own)},
		"the group's own":                         {own, off(all), own},
		"that of all groups":                      {off(own), all, all},
		"both: the group's message, common names": {own, all, Maintenance{On: true, Message: "here", Bypass: []string{"bob"}}},
		"both, the group without a message":       {Maintenance{On: true}, all, Maintenance{On: true, Message: "everywhere"}},
	} {
		if diff := cmp.Diff(c.want, c.own.Under(c.all)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
