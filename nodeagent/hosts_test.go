package nodeagent_test

import (
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/enginetest"
)

// elsewhere is a loopback address other than 127.0.0.1.
const elsewhere = "127.0.0.2"

// advertised gives a node another address than 127.0.0.1.
func advertised(c *nodeagent.Config) {
	taking(c)
	c.Address = elsewhere
}

// web answers GETs on the address of ORRERY_TEST_HOST, all if it is empty.
func web() int {
	l, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("ORRERY_TEST_HOST"), os.Getenv("ORRERY_PORT")))
	if err != nil {
		return 1
	}
	_ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // until it is killed
	return 1
}

// asked is a plan of a web server that becomes ready when it answers.
func asked(plan fleet.Plan) fleet.Plan {
	plan.Env = map[string]string{"ORRERY_TEST_MODE": "web"}
	plan.Readiness = fleet.Check{Type: fleet.CheckHTTP}
	plan.StartupTimeoutSeconds = 10
	return plan
}

func TestContainerIsProbedAtPublishedPort(t *testing.T) {
	e := enginetest.Start(t)
	if _, err := e.Docker("network", "create", "private"); err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(advertised)
	plan := asked(contained("exec /.orrery/pane"))
	plan.Container.Network = "private"
	s.place("aaaaaa", 1, plan, freePort(t))
	s.awaitState("aaaaaa", 1, fleet.Online)
}

func TestServerIsProbedAtAdvertisedAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(advertised)
	plan := asked(server())
	plan.Env["ORRERY_TEST_HOST"] = elsewhere
	plan.Stop.Command = ""
	admin := freePort(t)
	plan.AdditionalPorts = []fleet.NamedPort{{Name: "admin", Protocol: "tcp", Range: fleet.PortRange{Start: admin, End: admin}}}
	plan.RCON = fleet.RCON{Port: "admin", Password: "secret"}
	s.write(keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan, TouchedAt: time.Now()})
	s.write(keys.Placement(node, "aaaaaa"), fleet.Placement{
		Instance: "aaaaaa", Name: "lobby-1", Group: "lobby", Node: node, Generation: 1, Plan: plan.Digest(), PlacedAt: time.Now(),
		Port: freePort(t), Ports: map[string]int{"admin": admin},
	})
	s.awaitState("aaaaaa", 1, fleet.Online)
	remoteConsole(t, elsewhere, admin, "secret")
	if answer, err := s.api().RCON(t.Context(), "aaaaaa", "list"); err != nil || answer.Answer != "you said list" {
		t.Errorf("%q, %v", answer.Answer, err)
	}
}
