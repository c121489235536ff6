package e2e_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// rule is an alert from the rules file.
type rule struct {
	Alert, Expr string
	Annotations struct{ Summary, Description string }
}

func alertRules(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile("../deployments/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

func TestAlertsAreAboutMetricsAndLabelsThatExist(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, catGroup("lobby", map[string]any{"minInstances": 1}))
	admin.AwaitRunning("lobby", 1)
	var text string
	await.That(t, "figures of the group", func() string {
		text = c.Metrics()
		return await.Unless(strings.Contains(text, `orrery_enforcer_instances{group="lobby",state="ONLINE"} 1`) &&
			strings.Contains(text, `orrery_enforcer_group_missing{group="lobby"} 0`) &&
			strings.Contains(text, `orrery_enforcer_group_paused{group="lobby"} 0`), "they are not there")
	})
	metric, label := regexp.MustCompile(`orrery_[a-z0-9_]+`), regexp.MustCompile(`\$labels\.([a-z]+)`)
	for _, r := range alertRules(t) {
		if r.Alert == "OrreryCertificateExpires" {
			continue // TestTheAPIOverTLS has its metric
		}
		if r.Alert == "OrreryServiceCertificateExpires" && cluster.Service(c, "apigateway-1") == nil {
			continue // services in one process have no files
		}
		metrics := metric.FindAllString(r.Expr, -1)
		for _, name := range metrics {
			if !strings.Contains(text, "\n"+name+" ") && !strings.Contains(text, "\n"+name+"{") {
				t.Errorf("%s: there is no metric %s", r.Alert, name)
			}
		}
		for _, found := range label.FindAllStringSubmatch(r.Annotations.Summary+r.Annotations.Description, -1) {
			ofProgram := slices.Contains([]string{"instance", "job"}, found[1]) // labels that Prometheus adds
			if !ofProgram && !strings.Contains(text, "\n"+metrics[0]+"{"+found[1]+"=") {
				t.Errorf("%s: %s has no label %s", r.Alert, metrics[0], found[1])
			}
		}
	}
}
