package controller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/enforcer/client"
	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
)

func TestAnExpressionScalesAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, _ := w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", func(g *fleet.Group) {
		scales(0)(g)
		g.Spec.Scaling.Policies = []scalepolicy.Policy{{Name: "spare", Type: scalepolicy.CEL, Expression: "players > 4 ? 3 : -1"}}
	})
	first := w.untilLiving("lobby", 1)[0].Intent.ID
	w.online(first)
	w.players(map[fleet.InstanceID]int{first: 5})
	all := w.untilLiving("lobby", 3)
	d := w.untilScaled("a decision", func(d *scaling.Decision) bool { return d != nil })
	if d.Reason != fleet.ReasonPolicy || d.Policy != "spare" || d.To != 3 || !strings.Contains(d.Message, "policy spare asks for 3 instances") {
		t.Errorf("the decision is %+v", d)
	}
	for _, i := range all {
		if i.Intent.ID != first && (i.Intent.Reason != fleet.ReasonPolicy || i.Intent.Message != d.Message) {
			t.Errorf("%s was started because of %s, %q", i.Intent.Name, i.Intent.Reason, i.Intent.Message)
		}
		w.online(i.Intent.ID)
	}
	w.change("lobby", func(g *fleet.Group) { g.Spec.Scaling.Policies = nil })
	w.untilLiving("lobby", 1) // nothing asks for the idle ones any more

	rules := fleet.DefaultSpec().Scaling
	rules.Min, rules.Max = 1, 4
	rules.Policies = []scalepolicy.Policy{{Name: "more", Type: scalepolicy.CEL, Expression: "4"}}
	await.That(t, "a replay", func() string {
		out, err := c.Replay("lobby", client.ReplayQuestion{Scaling: rules, MaxPlayers: 10})
		if err == nil && out.Then.Up == 1 && out.Then.Down == 1 && out.Would.Most == 4 {
			return ""
		}
		return fmt.Sprintf("%+v %v", out, err)
	})
	if _, err := c.Replay("other", client.ReplayQuestion{Scaling: rules}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a replay of an unknown group: %v", err)
	}
}

func TestAWebhookScalesAGroup(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"instances":2}`)) }))
	t.Cleanup(server.Close)
	w := newWorld(t)
	egresstest.AllowLoopback(t, w.client)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", func(g *fleet.Group) {
		scales(0)(g)
		g.Spec.Scaling.Policies = []scalepolicy.Policy{scalepolicy.Policy{Name: "ai", Type: scalepolicy.Webhook, URL: server.URL}.WithDefaults()}
	})
	w.untilLiving("lobby", 2)
	if d := w.untilScaled("a decision", func(d *scaling.Decision) bool { return d != nil }); d.Policy != "ai" || d.To != 2 {
		t.Errorf("the decision is %+v", d)
	}
}

func TestAWebhookThatHangsDelaysNoDecision(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(end) })
	w := newWorld(t)
	egresstest.AllowLoopback(t, w.client)
	w.enforcer("a", plan.DefaultLimits())
	w.group("lobby", func(g *fleet.Group) {
		scales(0)(g)
		g.Spec.Scaling.Policies = []scalepolicy.Policy{
			scalepolicy.Policy{Name: "ai", Type: scalepolicy.Webhook, URL: server.URL, TimeoutSeconds: scalepolicy.MaxTimeout}.WithDefaults(),
			{Name: "two", Type: scalepolicy.CEL, Expression: "2"},
		}
	})
	w.untilLiving("lobby", 2)
}
