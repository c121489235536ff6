package txn

import (
	"context"
	"sync"
)

const (
	// maxJobs limits the jobs waiting for Run.
	maxJobs = 64
	// workers is how many jobs Run executes concurrently.
	workers = 8
)

// Enqueue gives a job to Run, which carries it out after the request was answered. It reports
// false when too many jobs wait already.
func (o *Committer) Enqueue(job func(context.Context)) bool {
	select {
	case o.jobs <- job:
		return true
	default:
		return false
	}
}

// Run carries out the enqueued jobs until ctx ends. It cancels the jobs that are running then.
func (o *Committer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				select {
				case job := <-o.jobs:
					job(ctx)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	wg.Wait()
}
