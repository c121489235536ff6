package server

import "sync"

const (
	// maxUploads limits concurrent uploads, maxUploadsEach those of one user.
	maxUploads     = 256
	maxUploadsEach = 32
)

// uploads counts running uploads. The zero value is ready for use.
type uploads struct {
	mu  sync.Mutex
	all int
	by  map[string]int
}

// enter starts an upload of a user; leave ends it. ok is false at the limit.
func (u *uploads) enter(user string) (leave func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all >= maxUploads || u.by[user] >= u.share() {
		return nil, false
	}
	if u.by == nil {
		u.by = map[string]int{}
	}
	u.all++
	u.by[user]++
	return func() { u.leave(user) }, true
}

// share returns how many uploads one user may have now: one, or a quarter of the free ones, so that a
// few users cannot take all of them.
func (u *uploads) share() int {
	return min(max((maxUploads-u.all)/4, 1), maxUploadsEach)
}

func (u *uploads) leave(user string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all--
	if u.by[user]--; u.by[user] == 0 {
		delete(u.by, user)
	}
}
