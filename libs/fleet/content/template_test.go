package content

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

func TestTemplateDescriptionLimits(t *testing.T) {
	if err := CheckDescription(strings.Repeat("ä\n", validate.MaxDescription/2), strings.Repeat("ä", validate.MaxPlatform)); err != nil {
		t.Error(err)
	}
	if err := CheckDescription("a\r\nb\r\n\nc", ""); err != nil {
		t.Errorf("as a form sends it: %v", err)
	}
	for _, c := range []struct{ description, platform, field string }{
		{strings.Repeat("x", validate.MaxDescription+1), "", "description"},
		{"a\x00", "", "description"},
		{"a\rb", "", "description"},
		{"a\r\n\r", "", "description"},
		{"", strings.Repeat("x", validate.MaxPlatform+1), "platform"},
		{"", "a\nb", "platform"},
	} {
		if err := CheckDescription(c.description, c.platform); errs.FieldOf(err) != c.field || !errs.Is(err, errs.Invalid) {
			t.Errorf("%.20q of %.20q: %v", c.description, c.platform, err)
		}
	}
}
