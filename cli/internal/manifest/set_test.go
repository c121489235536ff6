package manifest

import (
	"strings"
	"testing"
)

func TestSet(t *testing.T) {
	d := Document{Kind: "Group", Name: "lobby"}
	for _, assignment := range []string{
		"minInstances=2", "command=java -Xmx1G -jar a=b.jar", "limits.processes=50", "labels.a.b/c=x", "env.A=1", "nodes=a, b", `templates=["x"]`,
		"static=true", "scaleUpThreshold=0.50", `readiness={"type":"port"}`, "readiness.port=query",
	} {
		if err := d.Set(assignment); err != nil {
			t.Errorf("%s: %v", assignment, err)
		}
	}
	want := decode(t, `{"minInstances":2,"command":"java -Xmx1G -jar a=b.jar","limits":{"processes":50},"labels":{"a.b/c":"x"},"env":{"A":"1"},"nodes":["a","b"],
		"templates":["x"],"static":true,"scaleUpThreshold":0.50,"readiness":{"type":"port","port":"query"}}`)
	if !Equal(d.Fields, want) {
		t.Errorf("got %v, not %v", d.Fields, want)
	}
}

func TestSetErrors(t *testing.T) {
	for assignment, want := range map[string]string{
		"minInstances":         `"minInstances" is not FIELD=VALUE`,
		"minInstance=1":        "minInstance: there is no field minInstance; did you mean minInstances?",
		"minInstances=two":     `minInstances: "two" is not a whole number`,
		"static=yes":           `static: "yes" is not true or false`,
		"limits.process=1":     "limits.process: there is no field process; did you mean processes?",
		"minInstances.x=1":     "minInstances.x: there is nothing below it",
		"limits=5":             "limits: 5 is not an object in JSON",
		"name=x":               "name: there is no field name",
		"scaleUpThreshold=[1]": "scaleUpThreshold: [1] is not a number",
	} {
		d := Document{Kind: "Group", Name: "lobby"}
		if err := d.Set(assignment); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s gave %v, not %s", assignment, err, want)
		}
	}
}

func TestSetTheKindOfASource(t *testing.T) {
	d := Document{Kind: "Source", Name: "x"}
	if err := d.Set("type=git"); err != nil || d.Fields["kind"] != "git" {
		t.Errorf("got %v, %v", d.Fields, err)
	}
	if err := d.Set("kind=git"); err == nil {
		t.Error("kind was accepted")
	}
}
