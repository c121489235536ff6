package server

import (
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestAYAMLBodyIsReadAsJSON(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"a mapping", "name: lobby\nminInstances: 2\nenv:\n  A: \"1\"\n", `{"env":{"A":"1"},"minInstances":2,"name":"lobby"}`},
		{"JSON is YAML", `{"a":[1,true,null]}`, `{"a":[1,true,null]}`},
		{"nothing", "", `null`},
		{"a date stays as it is written", "env: {DAY: 2020-01-01}\nat: 2020-01-01T10:00:00Z\n", `{"at":"2020-01-01T10:00:00Z","env":{"DAY":"2020-01-01"}}`},
		{"an anchor", "a: &x {b: 1}\nc: *x\n", `{"a":{"b":1},"c":{"b":1}}`},
	} {
		if got, err := jsonOf([]byte(c.in)); err != nil || string(got) != c.want {
			t.Errorf("%s: %s %v, want %s", c.name, got, err, c.want)
		}
	}
	for name, in := range map[string]string{
		"two documents": "a: 1\n---\nb: 2\n", "a tab as indentation": "a:\n\tb: 1\n", "a key twice": "a: 1\na: 2\n", "a key that is no text": "{[1]: 2}", "an infinite number": "a: .inf\n",
		"anchors that multiply": "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n",
	} {
		if got, err := jsonOf([]byte(in)); errs.KindOf(err) != errs.Malformed {
			t.Errorf("%s: %s %v, want Malformed", name, got, err)
		}
	}
}
