package server

import "sync"

const (
	// maxUploads and maxUploadsEach bound the uploads that come at the same time, in all
	// and of one user.
	maxUploads     = 256
	maxUploadsEach = 32
)

// uploads counts those under way. The zero value is ready for use.
type uploads struct {
	mu  sync.Mutex
	all int
	by  map[string]int
}

// enter begins one for a user, which leave ends. ok is false when there are enough.
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

// share is how many one user may have now: beside the first, a quarter of what is free, so
// that a few users who take all they get leave room for others.
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
