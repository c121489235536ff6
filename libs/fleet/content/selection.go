package content

import (
	"fmt"

	"github.com/orreryhq/orrery/libs/fleet/validate"
)

func (t TemplateSelection) Validate() []error {
	var p validate.Problems
	layers := func(field string, ls []TemplateLayer) {
		p.Check(len(ls) <= validate.MaxEntries, field, "must have at most %d entries", validate.MaxEntries)
		for i, l := range ls {
			p.Check(l.Valid(), fmt.Sprintf("%s[%d]", field, i), "%q is not a template name: use <group>/<name> with letters, digits, _ . and -", validate.Clip(l.String()))
			p.Word(fmt.Sprintf("%s[%d].storage", field, i), l.Storage, validate.MaxWord)
			p.Check(!l.Internal(), fmt.Sprintf("%s[%d]", field, i), "%q is reserved by Orrery and cannot be used by instances", validate.Clip(l.String()))
		}
	}
	groups := func(field string, gs []string) {
		p.Check(len(gs) <= validate.MaxEntries, field, "must have at most %d entries", validate.MaxEntries)
		for i, g := range gs {
			p.Check(validate.ValidSegment(g) && !TemplateRef{Group: g}.Internal(), fmt.Sprintf("%s[%d]", field, i), "%q is not a template group, or is reserved by Orrery", validate.Clip(g))
		}
	}
	layers("templates.allOf", t.AllOf)
	groups("templates.allInGroups", t.AllInGroups)
	layers("templates.oneOf", t.OneOf)
	groups("templates.oneInGroups", t.OneInGroups)
	return p.List
}
