package notice_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/notice"
)

var types = []string{"GROUP_CRASH_LOOP", "DEPLOYMENT_COMPLETED", "NODE_DISCONNECTED"}

func TestANoticeMatchesTypesGroupsAndSeverity(t *testing.T) {
	for _, c := range []struct {
		name     string
		n        notice.Notice
		event    string
		severity notice.Severity
		groups   []fleet.GroupName
		want     bool
	}{
		{"a type", notice.Notice{Events: []string{"GROUP_CRASH_LOOP"}}, "GROUP_CRASH_LOOP", notice.Critical, nil, true},
		{"another type", notice.Notice{Events: []string{"GROUP_CRASH"}}, "GROUP_CRASH_LOOP", notice.Critical, nil, false},
		{"a beginning", notice.Notice{Events: []string{"X", "GROUP_*"}}, "GROUP_CRASH_LOOP", notice.Critical, nil, true},
		{"every type", notice.Notice{Events: []string{"*"}}, "GROUP_CRASH_LOOP", notice.Info, nil, true},
		{"less urgent", notice.Notice{Events: []string{"*"}, MinSeverity: notice.Warning}, "GROUP_CREATED", notice.Info, nil, false},
		{"as urgent", notice.Notice{Events: []string{"*"}, MinSeverity: notice.Warning}, "GROUP_CREATED", notice.Warning, nil, true},
		{"its group", notice.Notice{Events: []string{"*"}, Groups: []fleet.GroupName{"a"}}, "GROUP_CREATED", notice.Info, []fleet.GroupName{"", "a"}, true},
		{"another group", notice.Notice{Events: []string{"*"}, Groups: []fleet.GroupName{"a"}}, "GROUP_CREATED", notice.Info, []fleet.GroupName{"b", ""}, false},
		{"an event of no group", notice.Notice{Events: []string{"*"}, Groups: []fleet.GroupName{"a"}}, "NODE_CONNECTED", notice.Info, []fleet.GroupName{""}, false},
	} {
		if c.n.MinSeverity == "" {
			c.n.MinSeverity = notice.Info
		}
		if got := c.n.Wants(c.event, c.severity, c.groups...); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestABadNoticeNamesTheField(t *testing.T) {
	good := notice.Notice{Name: "ops", Format: notice.JSON, Events: []string{"GROUP_*"}, MinSeverity: notice.Info}
	if problems := good.Validate(types); len(problems) != 0 {
		t.Fatal(problems)
	}
	for field, change := range map[string]func(*notice.Notice){
		"name":        func(n *notice.Notice) { n.Name = "a/b" },
		"format":      func(n *notice.Notice) { n.Format = "xml" },
		"minSeverity": func(n *notice.Notice) { n.MinSeverity = "bad" },
		"events":      func(n *notice.Notice) { n.Events = nil },
		"events[0]":   func(n *notice.Notice) { n.Events = []string{"PLAYER_CONNECTED"} },
		"events[1]":   func(n *notice.Notice) { n.Events = []string{"*", "*"} },
		"groups":      func(n *notice.Notice) { n.Groups = []fleet.GroupName{"a", "a"} },
		"description": func(n *notice.Notice) { n.Description = strings.Repeat("x", 5000) },
	} {
		n := good
		change(&n)
		if problems := n.Validate(types); len(problems) != 1 || errs.FieldOf(problems[0]) != field {
			t.Errorf("%s: %v", field, problems)
		}
	}
}

func TestATargetIsCheckedAndShownWithoutItsPath(t *testing.T) {
	const long = "0123456789abcdef"
	for _, c := range []struct {
		url, secret string
		format      notice.Format
		field       string
	}{
		{"https://host/path?x=1", long, notice.JSON, ""},
		{"http://host", "", notice.Slack, ""},
		{"", "", notice.JSON, "url"},
		{"ftp://host/", "", notice.JSON, "url"},
		{"https://", "", notice.JSON, "url"},
		{"https://u:p@host/", "", notice.JSON, "url"},
		{"https://host/#a", "", notice.JSON, "url"},
		{"https://host/***", "", notice.JSON, "url"},
		{"https://host/" + strings.Repeat("a", notice.MaxURL), "", notice.JSON, "url"},
		{"https://host/", "short", notice.JSON, "secret"},
		{"https://host/", long, notice.Discord, "secret"},
	} {
		var field string
		problems := notice.Target{URL: c.url, Secret: c.secret}.Validate(c.format)
		if len(problems) > 0 {
			field = errs.FieldOf(problems[0])
		}
		if field != c.field || len(problems) > 1 {
			t.Errorf("%q %q %s: %v", c.url, c.secret, c.format, problems)
		}
	}
	for target, want := range map[string]string{
		"https://host:1/api/token?x=1": "https://host:1/***",
		"https://host/?token=1":        "https://host/***",
		"https://host":                 "https://host/",
	} {
		if got := notice.Shown(target); got != want {
			t.Errorf("%s is shown as %s", target, got)
		}
	}
}
