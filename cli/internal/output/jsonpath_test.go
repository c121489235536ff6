package output_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/output"
)

func TestJSONPathTemplates(t *testing.T) {
	for template, want := range map[string]string{
		`{.items[*].id}`:                                                "lobby-1\nlobby-10\n007\n",
		`items[0].state`:                                                "RUNNING\n",
		`$.items[0].state`:                                              "RUNNING\n",
		`{.items[0].where} {.items[0].players}`:                         "{\"node\":\"node-1\"} 12\n",
		`ids: {.items[*].id}`:                                           "ids: lobby-1 lobby-10 007\n",
		`{range .items[*]}{.id}{"\t"}{.state}{"\n"}{end}`:               "lobby-1\tRUNNING\nlobby-10\tCRASHED\n007\tSTOPPED\n",
		`{range .items[*]}{@.id}\t{$.items[0].id}\n{end}`:               "lobby-1\tlobby-1\nlobby-10\tlobby-1\n007\tlobby-1\n",
		`{range .items[0:2]}{range .where}{.node};{end}{end}`:           "node-1;ノード;\n",
		`{range .items[?(@.players > 2)].id}[{.}]{end}`:                 "[lobby-1][007]\n",
		`{.items[?@.state == "}"].id}{"{"}{'}'}{"a\"b"}{'it\'s'}\\`:     "{}a\"bit's\\\n",
		`{ .items[0].id }{"\n"}`:                                        "lobby-1\n",
		`{range .items[*]}{end}`:                                        "\n",
		`{.items[0].nothing}`:                                           "",
		`{.items[0].nothing}!`:                                          "!\n",
		`{.items[1].players} {.items[0].tags} {.items[0].extra.a} über`: "null [] null über\n",
		`{.items[*]['id','state']}{""}`:                                 "lobby-1 RUNNING lobby-10 CRASHED 007 STOPPED\n",
	} {
		var out bytes.Buffer
		if err := printer(t, "jsonpath="+template, &out).List(columns, "id", rows); err != nil {
			t.Errorf("%s: %v", template, err)
		}
		if out.String() != want {
			t.Errorf("%s prints %q, want %q", template, out.String(), want)
		}
	}
}

func TestJSONPathTemplatesAreRefusedWithAPosition(t *testing.T) {
	for template, want := range map[string]string{
		`{.id`:                          "at character 1: { has no }",
		`ü {.id`:                        "at character 3: { has no }",
		`{.id}}`:                        "at character 6: } has no {",
		`{range .items[*]}{.id}`:        "at character 1: {range} has no {end}",
		`{.id}{end}`:                    "at character 6: {end} has no {range}",
		`{"a" "b"}`:                     `at character 1: {"a" "b"} is not a text in quotes`,
		`a {.items[}`:                   `at character 3: ".items["`,
		``:                              "at character 1: the expression is missing",
		`{}`:                            "at character 1: the expression is missing",
		`{range}{end}`:                  "at character 1: the expression is missing",
		`{if .id}`:                      `at character 1: {if .id} is not known`,
		`{.labels.example\.com/a}`:      `at character 1:`,
		`{range .a}{range .b}{.c}{end}`: "at character 1: {range} has no {end}",
	} {
		_, err := output.ParseFormat("jsonpath=" + template)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", template, err, want)
		}
	}
}
