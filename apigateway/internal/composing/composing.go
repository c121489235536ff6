// Package composing holds the fields of a group that say how the files of an instance
// are made of its templates. Both dialects have them under the same names, so they
// stand here once.
package composing

import (
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Files are those fields as JSON has them. Absent (nil) fields say nothing; of a read
// all are there.
type Files struct {
	// AutoLayers lays base, base-<platform> and the group's own template below the others.
	AutoLayers *bool `json:"autoLayers,omitempty"`
	// MergeFiles are globs of files merged by layer; an empty list merges none.
	MergeFiles *[]string `json:"mergeFiles,omitempty"`
	// ConfigRules are patches, applied after configPatches.
	ConfigRules *[]fleet.ConfigPatch `json:"configRules,omitempty"`
}

// Onto changes what the fields say of a spec and nothing else.
func (f Files) Onto(s *fleet.GroupSpec) {
	if f.AutoLayers != nil {
		s.AutoLayers = *f.AutoLayers
	}
	if f.MergeFiles != nil {
		s.MergeFiles = append([]string(nil), *f.MergeFiles...)
	}
	if f.ConfigRules != nil {
		s.ConfigRules = append([]fleet.ConfigPatch(nil), *f.ConfigRules...)
		for i, r := range s.ConfigRules {
			s.ConfigRules[i].Op = fleet.PatchOp(strings.ToUpper(string(r.Op)))
		}
	}
}

// Of shows how a spec has files made: every field.
func Of(s fleet.GroupSpec) Files {
	return Files{
		AutoLayers:  &s.AutoLayers,
		MergeFiles:  new(append([]string{}, s.MergeFiles...)),
		ConfigRules: new(append([]fleet.ConfigPatch{}, s.ConfigRules...)),
	}
}
