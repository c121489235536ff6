package apigateway

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func TestBoundsThatCameLaterBlockNoChangeOfOtherThings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	stored := func(name fleet.GroupName, edit func(*fleet.GroupSpec)) {
		g := fleet.Group{Name: name, Revision: 1, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(), Spec: fleet.DefaultSpec()}
		edit(&g.Spec)
		s.commit(store.Create(keys.Group(name), g))
	}
	const escape = "\x1b[31m"
	stored("base", func(spec *fleet.GroupSpec) {
		spec.Software.JVMArgs, spec.Motd.Lines = []string{escape}, []string{escape}
	})
	stored("lobby", func(spec *fleet.GroupSpec) { spec.Parent = "base" })

	s.do("PATCH", "/api/v1/groups/base", `{"minInstances":3}`).want(200).is("minInstances", 3).is("motds", []string{escape})
	s.do("PATCH", "/api/v1/groups/base", `{"motds":["\u001b[31m","\u001b[32m"]}`).want(422).naming("motds[1]")
	s.do("PATCH", "/api/v1/groups/base", `{"maintenanceMessage":"\u001b"}`).want(422).naming("maintenanceMessage")
	s.do("PATCH", "/api/v1/groups/lobby", `{"maintenance":true}`).want(200).is("maintenance", true)
	s.do("PATCH", "/api/v1/groups/lobby", `{"jvmArgs":["\u001b"]}`).want(422).naming("jvmArgs[0]")
	s.do("POST", "/api/v1/groups", `{"name":"arena","parent":"base"}`).want(422).naming("gives arena a value that is not valid there: jvmArgs[0]")
	s.do("POST", "/api/v1/groups/base/scale", `{"targetInstances":100001}`).want(422).naming("targetInstances")
	s.do("POST", "/api/v1/groups/base/scale", `{"targetInstances":1}`).want(200)
	s.do("PATCH", "/api/v1/groups/base", `{"motds":["hi"],"jvmArgs":["-Da=b"]}`).want(200)
	s.do("POST", "/api/v1/groups", `{"name":"arena","parent":"base"}`).want(201)
}
