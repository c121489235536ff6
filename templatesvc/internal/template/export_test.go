package template

// RememberAtMost bounds how many operations are remembered.
func (s *Service) RememberAtMost(n int) { s.memory = memoryOf(s.cfg, n) }
