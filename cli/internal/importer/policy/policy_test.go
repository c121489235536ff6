package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/cli/internal/importer/policy"
)

func TestEachSettingIsNamedOnceWithAllValues(t *testing.T) {
	container := func(fields map[string]any) map[string]any { return map[string]any{"container": fields} }
	got := policy.Needs([]map[string]any{
		{"name": "plain"},
		{"confine": map[string]any{"noNewPrivileges": true}},
		{"confine": map[string]any{"user": "games"}},
		container(map[string]any{"image": "debian", "network": "bridge", "user": ""}),
		container(map[string]any{"network": "host", "user": "1000", "volumes": []string{"/srv/a:/a:ro", "maps:/m"}}),
		container(map[string]any{"network": "host", "volumes": []string{"/srv/a:/b"}}),
	})
	want := []policy.Need{
		{Setting: "policy.users", Values: []string{"games"}},
		{Setting: "policy.container-users", Values: []string{"1000"}},
		{Setting: "policy.networks", Values: []string{"host"}},
		{Setting: "policy.volumes", Values: []string{"/srv/a", "maps"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
