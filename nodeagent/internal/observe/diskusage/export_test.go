package diskusage

import "context"

// Used returns the total size of directories, in bytes. Files that disappear count as 0.
// It returns Canceled if ctx ends first.
func (m *Meter) Used(ctx context.Context, dirs ...string) (int64, error) {
	if err := m.walkLock.lock(ctx); err != nil {
		return 0, err
	}
	defer m.walkLock.unlock()
	return m.walk(ctx, dirs)
}
