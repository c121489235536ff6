package nodeagent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/contract"
)

// given places an instance with start values.
func (s *site) given(id fleet.InstanceID, plan fleet.Plan, port int, values map[string]string) {
	s.t.Helper()
	s.write(keys.Plan(plan.Digest()), fleet.StoredPlan{Plan: plan, TouchedAt: time.Now()})
	s.write(keys.Placement(node, id), fleet.Placement{
		Instance: id, Name: "lobby-1", Group: "lobby", Node: node, Generation: 1, Plan: plan.Digest(), Port: port, PlacedAt: time.Now(), Values: values,
	})
}

const evil = `x'; touch pwned; "$(touch pwned)"` + " `touch pwned` %PORT% %%"

func TestStartValueIsNotCode(t *testing.T) {
	t.Parallel()
	for _, name := range []fleet.RuntimeName{fleet.RuntimeProcess, fleet.RuntimeTmux, fleet.RuntimeScreen} {
		t.Run(string(name), func(t *testing.T) {
			if name != fleet.RuntimeProcess {
				contract.Needs(t, string(name))
			}
			s := newSite(t)
			s.dir = shortDir(t)
			s.start(nil)
			id := s.id(1)
			plan := basic(`sh args.sh %X% "a %X%" 'b %X%' "$MOTD" %PORT% %OWN%; read line; exit 3`)
			plan.Runtime, plan.OnCrash = name, fleet.CrashRestart
			plan.Env = map[string]string{"MOTD": "hi %X%"}
			plan.Variables = map[string]string{"OWN": "$((1+1))"}
			plan.Layers = []fleet.PlanLayer{s.library.add("lobby", map[string]string{"motd.properties": "motd=%X%\n", "args.sh": "printf '<%s>' \"$@\" >got\n: %OWN%\n"})}
			plan.FileModifications = []string{"*.properties", "*.sh"}
			s.given(id, plan, 25570, map[string]string{"X": evil, "PORT": "1; touch pwned"})
			s.awaitState(id, 1, fleet.Online)
			want := "<" + evil + "><a " + evil + "><b " + evil + "><hi " + evil + "><25570><2>"
			got := func() string { return s.running(id, "got") }
			await.That(t, "the program's arguments", func() string { return await.Unless(got() == want, "%q, want %q", got(), want) })
			if got := s.running(id, "motd.properties"); got != "motd="+evil+"\n" {
				t.Errorf("the file is %q", got)
			}
			if err := s.api().WriteLine(t.Context(), id, "end"); err != nil { // a restart in place
				t.Fatal(err)
			}
			s.await(id, "started again", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
			await.That(t, "the arguments of the second run", func() string { return await.Unless(got() == want, "%q", got()) })
			if exists(s.dir + "/running/" + string(id) + "/pwned") {
				t.Error("the value ran")
			}
			s.order(id, 1, fleet.OrderStop)
			s.awaitState(id, 1, fleet.Stopped)
		})
	}
}

func TestUnsafeStartValueFailsStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	program := s.library.add("programs", map[string]string{"run.sh": "echo %X%\n", "tool": "#!/bin/sh\necho %X%\n", "user_jvm_args.txt": "-Xmx%X%\n", "options.cfg": "-Xmx%X%\n", "run": "echo %X%\n"})
	for n, c := range []struct {
		says string
		edit func(*fleet.Plan)
	}{
		{"bash", func(p *fleet.Plan) { p.Command = `bash -c 'sleep 1000; echo %X%'` }},
		{"eval", func(p *fleet.Plan) { p.Command = `eval "sleep 1000 %X%"` }},
		{"BASH_ENV", func(p *fleet.Plan) { p.Env = map[string]string{"BASH_ENV": "%X%"} }},
		{"hostAddress", func(p *fleet.Plan) { p.HostAddress = "%X%" }},
		{"run.sh", func(p *fleet.Plan) {
			p.Layers, p.FileModifications = []fleet.PlanLayer{program}, []string{"run.sh"}
		}},
		{"tool", func(p *fleet.Plan) {
			p.Layers, p.FileModifications = []fleet.PlanLayer{program}, []string{"tool"}
		}},
		{"user_jvm_args.txt", func(p *fleet.Plan) {
			p.Layers, p.FileModifications = []fleet.PlanLayer{program}, []string{"*.txt"}
		}},
		{"options.cfg", func(p *fleet.Plan) {
			p.Layers, p.FileModifications, p.Command = []fleet.PlanLayer{program}, []string{"*.cfg"}, "java @options.cfg -jar s.jar"
		}},
		{"run", func(p *fleet.Plan) {
			p.Layers, p.FileModifications, p.Command = []fleet.PlanLayer{program}, []string{"run"}, "sh -e ./run"
		}},
	} {
		plan := basic("sleep 1000")
		c.edit(&plan)
		id := s.id(n + 1)
		s.given(id, plan, 0, map[string]string{"X": evil})
		st := s.awaitState(id, 1, fleet.Failed)
		if st.Reason != fleet.ReasonStartValue || !strings.Contains(st.Message, c.says) || strings.Contains(st.Message, "pwned") {
			t.Errorf("%s: %s, %s", c.says, st.Reason, st.Message)
		}
	}
}
