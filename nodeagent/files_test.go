package nodeagent_test

import (
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestFilesHideSecretsAlsoAfterEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keepSecret(t, "db", recognisable)
	s.start(nil)
	id := s.id(1)
	plan := s.secretive(t, map[string]string{"FILE": "secret:db", "ENV": "secret:db", "COMMAND": "secret:db"})
	plan.Static = true
	plan.Command = `echo "$ORRERY_TOKEN" >token; mkdir -p logs; printf 'a\0b' >data.bin; touch done; read line`
	plan.Stop.Command = "stop"
	s.online(id, plan)
	api := s.api()
	await.That(t, "the files", func() string {
		d, err := api.Files(t.Context(), id, "")
		var names []string
		for _, e := range d.Entries {
			names = append(names, e.Name)
		}
		return await.Unless(err == nil && slices.Equal(names, []string{"data.bin", "db.properties", "done", "logs", "token"}), "%v, %v", names, err)
	})
	look := func() {
		t.Helper()
		if c, err := api.File(t.Context(), id, "db.properties", 1000, false); err != nil || c.Text != "password=***\nregion=north\n" || c.Cut {
			t.Errorf("%+v, %v", c, err)
		}
		if c, err := api.File(t.Context(), id, "token", 1000, true); err != nil || c.Text != "***\n" {
			t.Errorf("%+v, %v", c, err)
		}
		if c, err := api.File(t.Context(), id, "data.bin", 1000, false); err != nil || !c.Binary || c.Text != "" {
			t.Errorf("%+v, %v", c, err)
		}
		for path, want := range map[string]errs.Kind{"../x": errs.Invalid, "none": errs.NotFound, "logs": errs.Conflict} {
			if _, err := api.File(t.Context(), id, path, 1000, false); !errs.Is(err, want) || errs.FieldOf(err) != "path" {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	look()
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
	look()
	if _, err := api.Files(t.Context(), "zzzzzz", ""); !errs.Is(err, errs.NotFound) || errs.FieldOf(err) != "" {
		t.Errorf("an instance that is not here: %v", err)
	}
}

func TestFilesHideRestrictedVariables(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	plan := basic("sleep 1000")
	plan.Layers = []fleet.PlanLayer{s.library.add("lobby", map[string]string{"web.properties": "admin=%HOOK%\noperator=%ROUTE%\nstart=%SEED%\nall=%REGION%\n"})}
	plan.FileModifications = []string{"*.properties"}
	plan.Variables = map[string]string{"HOOK": "https://hooks.example/abc", "ROUTE": "inner-route", "SEED": "of-the-group", "REGION": "north-one"}
	plan.Hidden = map[string]content.Visibility{
		"HOOK": content.VisibleToAdmins, "ROUTE": content.VisibleToOperators, "SEED": content.VisibleToAdmins, "ABSENT": content.VisibleToAdmins,
	}
	s.write(keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan, TouchedAt: time.Now()})
	s.write(keys.Placement(node, id), fleet.Placement{
		Instance: id, Name: "lobby-1", Group: "lobby", Node: node, Generation: 1, Plan: plan.Digest(), PlacedAt: time.Now(),
		Values: map[string]string{"SEED": "of-the-start"},
	})
	s.awaitState(id, 1, fleet.Online)
	c, err := s.api().File(t.Context(), id, "web.properties", 1000, false)
	if err != nil || c.Text != "admin=***\noperator=***\nstart=***\nall=north-one\n" {
		t.Errorf("%+v, %v", c, err)
	}
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
}
