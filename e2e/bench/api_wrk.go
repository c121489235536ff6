package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"
)

const (
	// loadRounds is how often a load and its limit alternate; loadTime is the length of
	// each.
	loadRounds = 3
	loadTime   = 5 * time.Second
)

// load is a request for wrk and the number of connections.
type load struct {
	url, token  string
	connections int
	// packed requests gzip, as browsers and most clients do.
	packed bool
	// script is the file of a wrk script. Empty requests the URL as it is.
	script string
}

// rate is the result of a load.
type rate struct {
	perSecond float64
	p99       time.Duration
}

var (
	wrkRate = regexp.MustCompile(`Requests/sec:\s+(\S+)`)
	wrkP99  = regexp.MustCompile(`(?m)^\s+99%\s+(\S+)$`)
	wrkBad  = regexp.MustCompile(`Non-2xx or 3xx responses: .*|Socket errors: .*`)
)

var errNoWrk = errors.New("wrk is not installed, and what it measures is left out: apt-get install wrk")

// run runs wrk for a duration.
func (l load) run(ctx context.Context, d time.Duration) (rate, error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return rate{}, errNoWrk
	}
	args := []string{"--threads", "1", "--connections", strconv.Itoa(l.connections), "--duration", strconv.Itoa(max(1, int(d/time.Second))) + "s", "--latency"}
	if l.token != "" {
		args = append(args, "--header", "Authorization: Bearer "+l.token)
	}
	if l.packed {
		args = append(args, "--header", "Accept-Encoding: gzip")
	}
	if l.script != "" {
		args = append(args, "--script", l.script)
	}
	text, err := exec.CommandContext(ctx, program, append(args, l.url)...).CombinedOutput()
	if err != nil {
		return rate{}, fmt.Errorf("wrk %s: %w\n%s", l.url, err, text)
	}
	if bad := wrkBad.Find(text); bad != nil {
		return rate{}, fmt.Errorf("wrk %s: %s", l.url, bad)
	}
	return measured(text)
}

func measured(text []byte) (out rate, err error) {
	perSecond, p99 := wrkRate.FindSubmatch(text), wrkP99.FindSubmatch(text)
	if perSecond == nil || p99 == nil {
		return out, fmt.Errorf("wrk says something else than expected:\n%s", text)
	}
	if out.perSecond, err = strconv.ParseFloat(string(perSecond[1]), 64); err != nil {
		return out, err
	}
	out.p99, err = time.ParseDuration(string(p99[1]))
	return out, err
}

// beside alternates a load and its limit, and returns the medians of both.
func (l load) beside(ctx context.Context, limit load) (got, most rate, err error) {
	var rounds [2][]rate
	for range loadRounds {
		for n, one := range []load{l, limit} {
			r, err := one.run(ctx, loadTime)
			if err != nil {
				return got, most, err
			}
			rounds[n] = append(rounds[n], r)
		}
	}
	return middle(rounds[0]), middle(rounds[1]), nil
}

// middle returns the medians of rates and of times.
func middle(all []rate) rate {
	var per []float64
	var late []time.Duration
	for _, r := range all {
		per, late = append(per, r.perSecond), append(late, r.p99)
	}
	slices.Sort(per)
	slices.Sort(late)
	return rate{per[len(per)/2], late[len(late)/2]}
}

// answered returns the body of a response, which must have status 200.
func answered(url string, resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s\n%s", url, resp.Status, body[:min(len(body), 1000)])
	}
	return body, err
}
