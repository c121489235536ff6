//go:build !linux && !darwin

package doctor

import "errors"

// diskSpace is not known here: standalones run on Linux.
func diskSpace(string) (free, total int64, err error) {
	return 0, 0, errors.New("this system is not supported")
}
