package txn

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestJoinProblems(t *testing.T) {
	if err := JoinProblems(nil); err != nil {
		t.Errorf("no problems give %v", err)
	}
	one := errs.Field("a", "is too long")
	if err := JoinProblems([]error{one}); err != one {
		t.Errorf("one problem gives %v", err)
	}
	err := JoinProblems([]error{one, errs.Field("b", "is missing")})
	if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "a" {
		t.Errorf("two problems give kind %v of field %q", errs.KindOf(err), errs.FieldOf(err))
	}
	if m := errs.MessageOf(err); !strings.Contains(m, "a is too long") || !strings.Contains(m, "b is missing") {
		t.Errorf("the message %q does not have both problems", m)
	}
	var many []error
	for range maxProblems + 5 {
		many = append(many, one)
	}
	if n := strings.Count(errs.MessageOf(JoinProblems(many)), "is too long"); n != maxProblems {
		t.Errorf("the message has %d problems, want %d", n, maxProblems)
	}
}

func TestTextsForMessages(t *testing.T) {
	long := strings.Repeat("x", 65)
	cases := []struct{ got, want string }{
		{Clip("lobby"), "lobby"},
		{Clip(long[:64]), long[:64]},
		{Clip(long), long[:64] + "…"},
		{Count(1, "node"), "1 node"},
		{Count(0, "node"), "0 nodes"},
		{Count(2, "node"), "2 nodes"},
		{ListOf("network", []string{"eu"}), "network eu"},
		{ListOf("network", []string{"eu", "us"}), "networks eu, us"},
	}
	for _, c := range cases {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
