package fleet

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

func TestOldProblemsDoNotBlockOtherChanges(t *testing.T) {
	long := strings.Repeat("x", validate.MaxShown+1)
	cases := []struct {
		rule            string
		before, changed func(*GroupSpec)
		want            []string
	}{
		{"nothing is changed", func(s *GroupSpec) { s.Motd.Lines = []string{""} }, func(*GroupSpec) {}, nil},
		{"something else is changed", func(s *GroupSpec) { s.Motd.Lines = []string{""} }, func(s *GroupSpec) { s.Scaling.Min = 3 }, nil},
		{
			"something beside it is changed", func(s *GroupSpec) { s.Maintenance.Message, s.Maintenance.Bypass = long, []string{""} },
			func(s *GroupSpec) { s.Maintenance.On = true }, nil,
		},
		{"all of it is mended", func(s *GroupSpec) { s.Motd.Lines = []string{""} }, func(s *GroupSpec) { s.Motd.Lines = []string{"hi"} }, nil},
		{
			"a list gets another bad entry", func(s *GroupSpec) { s.Motd.Lines = []string{""} },
			func(s *GroupSpec) { s.Motd.Lines = []string{"", ""} },
			[]string{"motds[0]", "motds[1]"},
		},
		{
			"a bad entry stays in a list that is changed", func(s *GroupSpec) { s.Motd.Lines = []string{"", "a"} },
			func(s *GroupSpec) { s.Motd.Lines = []string{"", "b"} },
			[]string{"motds[0]"},
		},
		{
			"a text that is too long becomes another", func(s *GroupSpec) { s.Maintenance.Message = long },
			func(s *GroupSpec) { s.Maintenance.Message = "y" + long },
			[]string{"maintenanceMessage"},
		},
		{
			"something else becomes bad", func(s *GroupSpec) { s.Software.JVMArgs = []string{""} },
			func(s *GroupSpec) { s.Software.JarFile = "../x" },
			[]string{"jarFile"},
		},
		{"two that were right alone are not together", func(s *GroupSpec) { s.Scaling.Max = 2 }, func(s *GroupSpec) { s.Scaling.Min = 3 }, []string{"minInstances"}},
		{"the same is written otherwise", func(s *GroupSpec) {
			s.Motd.Lines = []string{""}
			s.Composition.ConfigPatches = map[string]map[string]json.RawMessage{"../x": {"a": json.RawMessage(`[1,2]`)}}
		}, func(s *GroupSpec) {
			s.Composition.ConfigPatches = map[string]map[string]json.RawMessage{"../x": {"a": json.RawMessage(`[1, 2]`)}}
		}, nil},
		{
			"all together becomes too much", func(s *GroupSpec) { s.Motd.Lines = []string{""} },
			func(s *GroupSpec) { s.Env = huge() },
			[]string{"env"},
		},
		{"all together is too much, and becomes less", func(s *GroupSpec) { s.Env = huge() }, func(s *GroupSpec) { s.HostAddress, s.MergeFiles = "h", nil }, nil},
		{"all together is too much, and becomes more", func(s *GroupSpec) { s.Env = huge() }, func(s *GroupSpec) { s.HostAddress = "h" }, []string{"env"}},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			before := DefaultSpec()
			c.before(&before)
			after := before
			c.changed(&after)
			var got []string
			for _, err := range after.ValidateChange(before) {
				got = append(got, errs.FieldOf(err))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("at fault are %v, want %v", got, c.want)
			}
		})
	}
}

// huge returns values that are valid one by one but too large together.
func huge() map[string]string {
	return map[string]string{
		"A": strings.Repeat("a", validate.MaxValueBytes), "B": strings.Repeat("b", validate.MaxValueBytes), "C": strings.Repeat("c", validate.MaxValueBytes),
		"D": strings.Repeat("d", validate.MaxValueBytes), "E": strings.Repeat("e", validate.MaxValueBytes), "F": strings.Repeat("f", validate.MaxValueBytes),
		"G": strings.Repeat("g", validate.MaxValueBytes), "H": strings.Repeat("h", validate.MaxValueBytes),
	}
}
