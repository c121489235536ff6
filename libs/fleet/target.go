package fleet

// MinimumTarget returns how many instances the group's minimum requires.
func (s *GroupSpec) MinimumTarget() int {
	n := max(0, s.Scaling.Min)
	if s.Scaling.Max > 0 {
		n = min(n, s.Scaling.Max)
	}
	if names := len(s.Static.InstanceNames); s.Static.Enabled && names > 0 {
		n = min(n, names)
	}
	return n
}
