package versions

// RememberAtMost sets how many operations are remembered.
func (s *Service) RememberAtMost(n int) { s.memory = memoryOf(s.cfg, n) }
