package fleet

import (
	"fmt"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Patches returns all patches of a spec in order: ConfigPatches sorted by file and path, then
// ConfigRules.
func (s GroupSpec) Patches() []configfile.ConfigPatch {
	var out []configfile.ConfigPatch
	byFile := s.Composition.ConfigPatches
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		for _, path := range slices.Sorted(maps.Keys(byFile[file])) {
			out = append(out, configfile.ConfigPatch{File: file, Path: path, Op: configfile.PatchSet, Value: byFile[file][path]})
		}
	}
	return append(out, s.ConfigRules...)
}

// validateComposition checks how the files of an instance are composed.
func (s GroupSpec) validateComposition() []error {
	var p validate.Problems
	p.Paths("mergeFiles", s.MergeFiles)
	all := s.Patches()
	p.Check(len(all) <= validate.MaxEntries, "configPatches", "and configRules must have at most %d entries in total", validate.MaxEntries)
	if len(all) > validate.MaxEntries {
		return p.List
	}
	for i, patch := range all {
		field := "configPatches"
		if n := i - (len(all) - len(s.ConfigRules)); n >= 0 {
			field = fmt.Sprintf("configRules[%d]", n)
		}
		if err := patch.Validate(); err != nil {
			p.Check(false, field, "%s", errs.MessageOf(err))
		}
	}
	return p.List
}
