package diskusage

import "context"

// Used returns the total size of directories, in bytes. Files that disappear count as 0.
// It returns Canceled if ctx ends first.
func (m *Meter) Used(ctx context.Context, dirs ...string) (int64, error) {
	select {
	case m.walking <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-m.walking }()
	return m.walk(ctx, dirs)
}
