package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// links is a directory that a policy admits, with symbolic links in it.
type links struct{ root, maps string }

func makeLinks(t *testing.T) links {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := links{root, filepath.Join(root, "maps")}
	for _, dir := range []string{"maps/arena", "maps2", "secret", "a:b", "maps/node/static/shared"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"maps/out": l.root + "/secret", "maps/up": "..", "maps/in": "arena", "maps/gone": "/no/such/file", "maps/colon": l.root + "/a:b",
		"alias": "maps", "maps/loop": "loop",
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l links) admit(admits []string, volumes ...string) (*runtime.Container, error) {
	d := &Deps{DataDir: l.root + "/maps/node", Policy: policy.Policy{Volumes: admits}, Node: func() fleet.Node { return fleet.Node{ID: "n1"} }}
	c := &runtime.Container{Container: isolation.Container{Volumes: volumes}}
	return c, d.admit(fleet.Plan{Runtime: fleet.RuntimeDocker}, c)
}

func TestAVolumeIsMountedFromWhereItsLinksLeadIfThePolicyAdmitsThat(t *testing.T) {
	l := makeLinks(t)
	for asked, mounted := range map[string]string{
		"/maps/arena": "/maps/arena", "/maps/in": "/maps/arena", "/maps/in/new/world": "/maps/arena/new/world", "/maps/up/maps/arena": "/maps/arena",
	} {
		c, err := l.admit([]string{l.maps}, l.root+asked+":/data:ro")
		if err != nil || c.Volumes[0] != l.root+mounted+":/data:ro" {
			t.Errorf("%s: mounted as %q, %v", asked, c.Volumes, err)
		}
	}
	if c, err := l.admit([]string{l.root + "/alias"}, l.root+"/alias/arena:/data"); err != nil || c.Volumes[0] != l.maps+"/arena:/data" {
		t.Errorf("an admitted directory that is a link itself: %q, %v", c.Volumes, err)
	}
	shared := l.maps + "/node/static/shared"
	if c, err := l.admit([]string{shared}, shared+"/a:/data"); err != nil || c.Volumes[0] != shared+"/a:/data" {
		t.Errorf("a part of the agent's data that is admitted by its own name: %q, %v", c.Volumes, err)
	}
	if c, err := l.admit([]string{"*"}, l.maps+"/out:/data", "worlds:/w"); err != nil || c.Volumes[0] != l.maps+"/out:/data" {
		t.Errorf("with every volume admitted: %q, %v", c.Volumes, err)
	}
	if c, err := l.admit([]string{"worlds"}, "worlds:/w"); err != nil || c.Volumes[0] != "worlds:/w" {
		t.Errorf("a volume of the engine: %q, %v", c.Volumes, err)
	}
}

func TestNoLinkLeadsAVolumeOutOfTheAdmittedDirectories(t *testing.T) {
	l := makeLinks(t)
	for asked, says := range map[string]string{
		"/maps/out":         "policy.volumes of n1 does not admit " + l.root + "/secret: add",
		"/maps/out/new":     "does not admit " + l.root + "/secret/new",
		"/maps/up":          "does not admit " + l.root + ", which contains the data",
		"/maps/up/maps2":    "does not admit " + l.root + "/maps2",
		"/maps/gone":        "a symbolic link in it leads nowhere",
		"/maps/gone/x":      "a symbolic link in it leads nowhere",
		"/maps/colon":       "a path with a colon",
		"/maps/loop":        "cannot be checked on n1",
		"/maps/../secret":   "policy.volumes of n1 does not admit",
		"/maps":             "policy.volumes of n1 does not admit " + l.maps + ", which contains the data of the agent: change",
		"/maps/node":        "which contains the data of the agent",
		"/maps/node/static": "does not admit " + l.maps + "/node/static: add",
		"/maps2":            "policy.volumes of n1 does not admit " + l.root + "/maps2: add",
		"/alias/arena":      "policy.volumes of n1 does not admit " + l.root + "/alias/arena: add",
		"/maps/arena/../..": "policy.volumes of n1 does not admit",
	} {
		if _, err := l.admit([]string{l.maps, "worlds"}, "worlds:/w", l.root+asked+":/data"); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), says) {
			t.Errorf("%s: %v, want %q", asked, err, says)
		}
	}
}

func TestAdmitLeavesThePlanAsItIs(t *testing.T) {
	l := makeLinks(t)
	plan := fleet.Plan{Runtime: fleet.RuntimeDocker, Container: isolation.Container{Volumes: []string{l.maps + "/in:/data"}}}
	d := &Deps{DataDir: l.root + "/node", Policy: policy.Policy{Volumes: []string{l.maps}}, Node: func() fleet.Node { return fleet.Node{ID: "n1"} }}
	c := &runtime.Container{Container: plan.Container}
	if err := d.admit(plan, c); err != nil || plan.Container.Volumes[0] != l.maps+"/in:/data" || c.Volumes[0] == plan.Container.Volumes[0] {
		t.Errorf("%q became %q, %v", plan.Container.Volumes, c.Volumes, err)
	}
}
