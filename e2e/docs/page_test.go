package docs

import (
	"strings"
	"testing"
)

func TestBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		page string
		run  int
		fail bool
	}{
		"commands run":                {page: "```sh test\ntrue\n```\n", run: 1},
		"commands with a reason skip": {page: "```sh notest: needs systemd\ntrue\n```\n"},
		"a reason must not be empty":  {page: "```sh notest:\ntrue\n```\n", fail: true},
		"commands need a word":        {page: "```sh\ntrue\n```\n", fail: true},
		"a block needs an info":       {page: "```\ntrue\n```\n", fail: true},
		"data is not run":             {page: "```json\n{}\n```\n"},
		"output needs commands":       {page: "```text output\nx\n```\n", fail: true},
		"a block must end":            {page: "```sh test\ntrue\n", fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			run, _, err := Blocks(c.page)
			if (err != nil) != c.fail || len(run) != c.run {
				t.Errorf("%d blocks, error %v", len(run), err)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	output := "one  1\ntwo id=k3x9 done\nthree\n"
	for want, missing := range map[string]bool{
		"one 1": false, "one 1\nthree": false, "two id=… done": false, "…\nthree": false,
		"three\none": true, "two id=… gone": true, "four": true,
	} {
		if got := Missing(output, strings.Split(want, "\n")); (got != "") != missing {
			t.Errorf("Missing(%q) = %q", want, got)
		}
	}
}
