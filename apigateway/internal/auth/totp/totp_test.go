package totp

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet/account"
)

// rfcSecret is the secret of the test vectors of RFC 4226 and RFC 6238.
var rfcSecret = []byte("12345678901234567890")

func TestHOTPMatchesRFC4226(t *testing.T) {
	for counter, want := range []string{"755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489"} {
		if got := hotp(rfcSecret, uint64(counter), 6); got != want {
			t.Errorf("counter %d: %s, want %s", counter, got, want)
		}
	}
}

func TestTOTPMatchesRFC6238(t *testing.T) {
	for unix, want := range map[int64]string{
		59: "94287082", 1111111109: "07081804", 1111111111: "14050471", 1234567890: "89005924", 2000000000: "69279037", 20000000000: "65353130",
	} {
		if got := hotp(rfcSecret, uint64(Step(time.Unix(unix, 0))), 8); got != want {
			t.Errorf("at %d: %s, want %s", unix, got, want)
		}
	}
}

func TestTheURIHasWhatAuthenticatorsRead(t *testing.T) {
	got := URI("Orrery of Ann", "ann", rfcSecret)
	u, err := url.Parse(got)
	if err != nil || u.Scheme != "otpauth" || u.Host != "totp" || u.Path != "/Orrery of Ann:ann" || strings.Contains(got, "+") {
		t.Fatalf("%s, %v", got, err)
	}
	for name, want := range map[string]string{"secret": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "issuer": "Orrery of Ann", "algorithm": "SHA1", "digits": "6", "period": "30"} {
		if u.Query().Get(name) != want {
			t.Errorf("%s is %q, want %q", name, u.Query().Get(name), want)
		}
	}
}

func TestCheck(t *testing.T) {
	now := time.Unix(1_800_000_015, 0)
	step := Step(now)
	codes, hashes := NewRecoveryCodes()
	confirmed := account.Factor{ConfirmedAt: now, Recovery: hashes[:2]}
	used := confirmed
	used.Step = step
	for name, c := range map[string]struct {
		factor *account.Factor
		code   string
		want   Verdict
	}{
		"a user without a factor needs no code":              {nil, "", NotAsked},
		"an enrolment that is not confirmed needs no code":   {&account.Factor{BeganAt: now}, "", NotAsked},
		"a confirmed factor needs a code":                    {&confirmed, "", Missing},
		"spaces are no code":                                 {&confirmed, " - ", Missing},
		"the code of this step":                              {&confirmed, Code(rfcSecret, step), Accepted},
		"a code with a space in the middle":                  {&confirmed, Code(rfcSecret, step)[:3] + " " + Code(rfcSecret, step)[3:], Accepted},
		"the code of the step before":                        {&confirmed, Code(rfcSecret, step-1), Accepted},
		"the code of the next step":                          {&confirmed, Code(rfcSecret, step+1), Accepted},
		"the code of two steps before":                       {&confirmed, Code(rfcSecret, step-2), Wrong},
		"the code of two steps later":                        {&confirmed, Code(rfcSecret, step+2), Wrong},
		"the code of a step that was used":                   {&used, Code(rfcSecret, step), Wrong},
		"the code of a step before the one that was used":    {&used, Code(rfcSecret, step-1), Wrong},
		"the code of a step after the one that was used":     {&used, Code(rfcSecret, step+1), Accepted},
		"a code with another length":                         {&confirmed, Code(rfcSecret, step)[1:], Wrong},
		"words":                                              {&confirmed, "open sesame", Wrong},
		"a recovery code":                                    {&confirmed, codes[0], Recovered},
		"a recovery code in lower case and without dashes":   {&confirmed, strings.ToLower(strings.ReplaceAll(codes[1], "-", "")), Recovered},
		"a recovery code that was used or belongs to others": {&confirmed, codes[2], Wrong},
		"a recovery code although the step was used":         {&used, codes[0], Recovered},
	} {
		next, got := Check(c.factor, rfcSecret, c.code, now)
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got == Accepted || got == Recovered {
			if _, again := Check(&next, rfcSecret, c.code, now); again != Wrong {
				t.Errorf("%s: the same code again: %v", name, again)
			}
		}
	}
}

func TestConfirm(t *testing.T) {
	now := time.Unix(1_800_000_015, 0)
	code := Code(rfcSecret, Step(now))
	for name, c := range map[string]struct {
		factor *account.Factor
		code   string
		want   Confirmation
	}{
		"the right code confirms":             {&account.Factor{BeganAt: now.Add(-time.Minute)}, code, Confirms},
		"a wrong code does not":               {&account.Factor{BeganAt: now}, "000000", WrongCode},
		"no enrolment was begun":              {nil, code, NotBegun},
		"the enrolment began too long ago":    {&account.Factor{BeganAt: now.Add(-EnrolTime)}, code, NotBegun},
		"a confirmed factor stays as it is":   {&account.Factor{BeganAt: now, ConfirmedAt: now}, code, Already},
		"a confirmed one, with a wrong code":  {&account.Factor{BeganAt: now, ConfirmedAt: now}, "", Already},
		"a recovery code confirms nothing":    {&account.Factor{BeganAt: now}, "AAAA-AAAA-AAAA-AAAA", WrongCode},
		"an empty code":                       {&account.Factor{BeganAt: now}, "", WrongCode},
		"a code that is five minutes too old": {&account.Factor{BeganAt: now}, Code(rfcSecret, Step(now)-10), WrongCode},
	} {
		next, got := Confirm(c.factor, rfcSecret, c.code, now)
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got != Confirms {
			continue
		}
		if _, v := Check(&next, rfcSecret, c.code, now); v != Wrong {
			t.Errorf("%s: the code that confirmed is accepted at a login: %v", name, v)
		}
	}
}

// Whatever the order of codes and the clock, no code is accepted twice, and only codes near the clock are.
func TestNoCodeIsAcceptedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(1_000_000, 2_000_000_000).Draw(t, "start"), 0)
		f := account.Factor{ConfirmedAt: now}
		used := map[int64]bool{}
		for range rapid.IntRange(1, 30).Draw(t, "logins") {
			now = now.Add(time.Duration(rapid.IntRange(-40, 90).Draw(t, "seconds")) * time.Second)
			step := Step(now) + rapid.Int64Range(-3, 3).Draw(t, "distance")
			next, v := Check(&f, rfcSecret, Code(rfcSecret, step), now)
			if v != Accepted {
				continue
			}
			if used[next.Step] || next.Step < Step(now)-skew || next.Step > Step(now)+skew {
				t.Fatalf("step %d is accepted at step %d; used %v", next.Step, Step(now), used)
			}
			used[next.Step], f = true, next
		}
	})
}
