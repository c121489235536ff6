package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

// keys returns settings as a request has them.
func keys(t *testing.T, text string) map[string]json.RawMessage {
	t.Helper()
	var out map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSettingsPatchSetsAndRemovesKeys(t *testing.T) {
	p, problems := cluster.ClusterSettings{}.With(keys(t, `{"http.cors.allowedOrigins":["https://B.example","https://a.example:8443","https://a.example:8443"],"network.allowedSubnets":["10.1.2.3/8","::ffff:192.0.2.0/120","fd00::1"],"security.rateLimiting.loginsPerMinute":0}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want := `{"http.cors.allowedOrigins":["https://a.example:8443","https://b.example"],"network.allowedSubnets":["10.0.0.0/8","192.0.2.0/24","fd00::1/128"],"security.rateLimiting.loginsPerMinute":0}`
	if diff := cmp.Diff(keys(t, want), p.ByKey()); diff != "" {
		t.Error(diff)
	}
	q, problems := p.With(keys(t, `{"http.cors.allowedOrigins":null,"network.allowedSubnets":[],"network.trustedProxies":["127.0.0.1"]}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	want = `{"network.allowedSubnets":[],"network.trustedProxies":["127.0.0.1/32"],"security.rateLimiting.loginsPerMinute":0}`
	if diff := cmp.Diff(keys(t, want), q.ByKey()); diff != "" {
		t.Error(diff)
	}
	if len(*p.AllowedSubnets) != 3 {
		t.Error("the patch it was made from changed")
	}
}

func TestSettingsPatchErrorNamesKey(t *testing.T) {
	many := `["10.0.0.1"` + strings.Repeat(`,"10.0.0.1"`, 100) + `]`
	for text, field := range map[string]string{
		`{"http.cors.origins":[]}`:                                "http.cors.origins",
		`{"security.jwtSecret":"x"}`:                              "security.jwtSecret",
		`{"http.cors.allowedOrigins":"*"}`:                        "http.cors.allowedOrigins",
		`{"http.cors.allowedOrigins":["https://a.example/path"]}`: "http.cors.allowedOrigins[0]",
		`{"http.cors.allowedOrigins":["*","a.example"]}`:          "http.cors.allowedOrigins[1]",
		`{"http.cors.allowedOrigins":["https://*.example"]}`:      "http.cors.allowedOrigins[0]",
		`{"http.cors.allowedOrigins":["https://u:p@a.example"]}`:  "http.cors.allowedOrigins[0]",
		`{"network.allowedSubnets":["10.0.0.0/33"]}`:              "network.allowedSubnets[0]",
		`{"network.allowedSubnets":["fe80::1%eth0"]}`:             "network.allowedSubnets[0]",
		`{"network.allowedSubnets":[1]}`:                          "network.allowedSubnets",
		`{"network.allowedSubnets":` + many + `}`:                 "network.allowedSubnets",
		`{"network.trustedProxies":["0.0.0.0/0"]}`:                "network.trustedProxies[0]",
		`{"network.trustedProxies":["::/0"]}`:                     "network.trustedProxies[0]",
		`{"security.rateLimiting.perIpPerMinute":-1}`:             "security.rateLimiting.perIpPerMinute",
		`{"security.rateLimiting.perIpPerMinute":1.5}`:            "security.rateLimiting.perIpPerMinute",
		`{"security.rateLimiting.loginsPerMinute":1000001}`:       "security.rateLimiting.loginsPerMinute",
	} {
		_, problems := cluster.ClusterSettings{}.With(keys(t, text))
		if len(problems) != 1 || errs.FieldOf(problems[0]) != field || !errs.Is(problems[0], errs.Invalid) {
			t.Errorf("%.80s: %v, want %s to be blamed", text, problems, field)
		}
	}
	if cluster.ValidateReason(strings.Repeat("x", 256)) != nil || cluster.ValidateReason(strings.Repeat("x", 257)) == nil || cluster.ValidateReason("a\nb") == nil {
		t.Error("a reason is not bounded as it should be")
	}
}
