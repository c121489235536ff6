package workload

import (
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// pace limits how often each instance does something at this gateway. All instances share the same time
// windows, so past windows need no memory.
type pace struct {
	limit  int
	window time.Duration
	now    func() time.Time

	mu     sync.Mutex
	began  time.Time
	counts map[fleet.InstanceID]int
}

// allow counts a request. Above the limit it answers 429 and returns false.
func (p *pace) allow(c *gin.Context, what string) bool {
	wait, over := p.count(server.OwnInstance(c))
	if over {
		server.Refuse(c, wire.Reply{
			Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", RetryAfter: max(wait, time.Second),
			Message: "too many " + what + " of this instance: wait a moment",
		})
	}
	return !over
}

// count counts a request of an instance and returns the time until the window ends.
func (p *pace) count(id fleet.InstanceID) (wait time.Duration, over bool) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil || now.Sub(p.began) >= p.window {
		p.began, p.counts = now, map[fleet.InstanceID]int{}
	}
	p.counts[id]++
	return p.window - now.Sub(p.began), p.counts[id] > p.limit
}
