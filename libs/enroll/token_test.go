package enroll_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/errs"
)

func TestATokenIsReadAsItWasWritten(t *testing.T) {
	token := enroll.Token{Secret: "pxr_x", Node: "node-1", Authority: "ab12", Gateways: []string{"https://10.0.0.1:7401", "https://[::1]:1"}}
	got, err := enroll.ParseToken(" " + token.String() + "\n")
	if err != nil || !cmp.Equal(got, token) {
		t.Errorf("%+v, %v; want %+v", got, err, token)
	}
}

func TestATokenThatIsNotWholeIsRefused(t *testing.T) {
	whole := enroll.Token{Secret: "pxr_x", Node: "node-1", Authority: "ab12", Gateways: []string{"https://10.0.0.1:7401"}}
	text := whole.String()
	bare, foreign := whole, whole
	bare.Gateways, foreign.Node = nil, "a/b"
	for name, text := range map[string]string{
		"empty": "", "the secret alone": whole.Secret, "cut": text[:len(text)-5], "without its secret": text[strings.Index(text, "."):],
		"without gateways": bare.String(), "of an impossible node": foreign.String(), "another text": "eyJ.eyJ",
	} {
		if _, err := enroll.ParseToken(text); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "not whole") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
