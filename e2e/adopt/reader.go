package adopt

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/pause"
)

// readEvery is the interval between reads of a console.
const readEvery = 200 * time.Millisecond

// reader follows one console by its offset, across restarts of the agent.
type reader struct {
	trial *trial
	uid   string

	mu   sync.Mutex
	next int64
	rest []byte // of an incomplete line
	// last is the last number read; 0 before the first.
	last, gaps, duplicates int
	mark                   int // value of last at the first call of beyond
	err                    error
}

var numbered = regexp.MustCompile(`line (\d+)\s*$`)

func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		data, next, err := r.read(ctx)
		r.mu.Lock()
		if r.err = err; err == nil {
			r.take(data, next)
		}
		r.mu.Unlock()
		pause.For(ctx, readEvery)
	}
}

// read asks the gateway for the output after the offset.
func (r *reader) read(ctx context.Context) ([]byte, int64, error) {
	url := fmt.Sprintf("%s/api/v1/services/%s/console/output?offset=%d", r.trial.site.Gateways()[0], r.uid, r.next)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+r.trial.token)
	resp, err := r.trial.http.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, data)
	}
	if err != nil {
		return nil, 0, err
	}
	next, err := strconv.ParseInt(resp.Header.Get("Orrery-Next-Offset"), 10, 64)
	if err == nil && next != r.next+int64(len(data)) {
		err = fmt.Errorf("%d bytes from %d lead to %d", len(data), r.next, next)
	}
	return data, next, err
}

// take counts the complete lines. r.mu is held.
func (r *reader) take(data []byte, next int64) {
	r.next = next
	text := append(r.rest, data...)
	end := bytes.LastIndexByte(text, '\n') + 1
	r.rest = bytes.Clone(text[end:])
	for line := range bytes.Lines(text[:end]) {
		found := numbered.FindSubmatch(line)
		if found == nil {
			continue
		}
		n, _ := strconv.Atoi(string(found[1]))
		switch {
		case n <= r.last:
			r.duplicates++
		default:
			r.gaps += n - r.last - 1
			r.last = n
		}
	}
}

// beyond reports whether lines have been read since its first call.
func (r *reader) beyond() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mark == 0 {
		r.mark = max(r.last, 1)
	}
	return r.last > r.mark
}

func (r *reader) problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("read up to line %d: %v", r.last, r.err)
}
