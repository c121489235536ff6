package label

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestLabelExpressionsMatch(t *testing.T) {
	cases := []struct {
		expr                   string
		want                   LabelExpr
		absent, empty, a, b, c bool // whether it matches without the label zone, and with each value
	}{
		{"zone", LabelExpr{"zone", LabelExists, nil}, false, true, true, true, true},
		{"zone exists", LabelExpr{"zone", LabelExists, nil}, false, true, true, true, true},
		{" !zone ", LabelExpr{"zone", LabelAbsent, nil}, true, false, false, false, false},
		{"zone=a", LabelExpr{"zone", LabelEqual, []string{"a"}}, false, false, true, false, false},
		{"zone == a", LabelExpr{"zone", LabelEqual, []string{"a"}}, false, false, true, false, false},
		{"zone=", LabelExpr{"zone", LabelEqual, []string{""}}, false, true, false, false, false},
		{"zone!=a", LabelExpr{"zone", LabelNotEqual, []string{"a"}}, true, true, false, true, true},
		{"zone in (a,b)", LabelExpr{"zone", LabelIn, []string{"a", "b"}}, false, false, true, true, false},
		{"zone NOTIN ( a , b )", LabelExpr{"zone", LabelNotIn, []string{"a", "b"}}, true, true, false, false, true},
	}
	for _, c := range cases {
		e, err := ParseLabelExpr(c.expr)
		if err != nil {
			t.Errorf("%q: %v", c.expr, err)
			continue
		}
		if diff := cmp.Diff(c.want, e); diff != "" {
			t.Errorf("%q: %s", c.expr, diff)
		}
		if again, err := ParseLabelExpr(e.String()); err != nil || !cmp.Equal(again, e) {
			t.Errorf("%q is written %q, which reads %+v, %v", c.expr, e, again, err)
		}
		if got := e.Matches(map[string]string{"other": "a"}); got != c.absent {
			t.Errorf("%q without the label: %v", c.expr, got)
		}
		for value, want := range map[string]bool{"": c.empty, "a": c.a, "b": c.b, "c": c.c} {
			if got := e.Matches(map[string]string{"zone": value}); got != want {
				t.Errorf("%q with %q: %v", c.expr, value, got)
			}
		}
	}
}

func TestParseLabelExprErrorsGivePosition(t *testing.T) {
	for expr, says := range map[string]string{
		"":               "a label key is missing at character 1",
		"=a":             "a label key is missing at character 1",
		"!":              "a label key is missing at character 2",
		"zone=a b":       "there is unexpected text at character 8",
		"zone is a":      `"is" is not an operator at character 6`,
		"zone in a":      `"(" is missing at character 9`,
		"zone in (":      "a value is missing at character 10",
		"zone in ()":     "a value is missing at character 10",
		"zone in (a":     `"," or ")" is missing at character 11`,
		"zone in (a b)":  `"," or ")" is missing at character 12`,
		"zone in (a,)":   "a value is missing at character 12",
		"zone>a":         "an operator is missing at character 5",
		"zone\x00":       "an operator is missing at character 5",
		"zöne":           "an operator is missing at character 2",
		"!zone=a":        "there is unexpected text at character 6",
		"zone in (a) or": "there is unexpected text at character 13",
	} {
		_, err := ParseLabelExpr(expr)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", expr, err, says)
		}
	}
}

func FuzzLabelExprRoundTrip(f *testing.F) {
	for _, seed := range []string{"zone", "!zone", "zone=a", "zone!=", "zone in (a, b)", "zone notin (a)", "zone in ("} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseLabelExpr(text)
		if err != nil {
			return
		}
		again, err := ParseLabelExpr(e.String())
		if err != nil || !cmp.Equal(again, e) {
			t.Errorf("%q is %+v, written %q, which reads %+v, %v", text, e, e, again, err)
		}
		for _, labels := range []map[string]string{nil, {e.Key: ""}, {e.Key: "a"}} {
			opposite := map[LabelOp]LabelOp{
				LabelExists: LabelAbsent, LabelAbsent: LabelExists, LabelEqual: LabelNotEqual,
				LabelNotEqual: LabelEqual, LabelIn: LabelNotIn, LabelNotIn: LabelIn,
			}
			if e.Matches(labels) == (LabelExpr{e.Key, opposite[e.Op], e.Values}).Matches(labels) {
				t.Errorf("%q and its opposite agree on %v", e, labels)
			}
		}
	})
}
