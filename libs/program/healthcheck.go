package program

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
)

const (
	// healthcheckWord in front of a program's settings asks instead of runs.
	healthcheckWord = "healthcheck"
	// healthcheckPatience bounds the question; it is shorter than what containers and supervisors wait.
	healthcheckPatience = 4 * time.Second
	// healthcheckAnswer is how much of an answer is shown.
	healthcheckAnswer = 4 << 10
)

// healthcheck asks the program that runs with the same settings whether it is
// ready, prints its answer and returns 0 if it is. It is for containers and
// supervisors, so that an image needs no tool beside the program itself.
func healthcheck(s Spec, args, env []string, stdout, stderr io.Writer) int {
	return config.Main(config.Options{
		Name: s.Name + " " + healthcheckWord, Version: telemetry.Version(), Args: args, Env: env, Into: s.Into, Stdout: stdout, Unchecked: true,
		About: "Asks the " + s.Name + " that runs here with the same settings whether it is ready; exits 0 when it is.",
	}, stderr, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), healthcheckPatience)
		defer cancel()
		answer, err := askReady(ctx, s.Common.AdminAddress)
		if err == nil {
			fmt.Fprintln(stdout, answer)
		}
		return err
	})
}

// askReady asks an admin listener. The error is Unavailable when it is not there
// or not ready, Invalid when its address does not say where it is.
func askReady(ctx context.Context, address string) (string, error) {
	target, err := adminTarget(address)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/readyz", nil)
	if err != nil {
		return "", errs.WrapAs(errs.Invalid, "program.healthcheck", err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", errs.New(errs.Unavailable, "%s does not answer: %v", target, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, healthcheckAnswer))
	if err != nil {
		return "", errs.New(errs.Unavailable, "%s does not answer: %v", target, err)
	}
	answer := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return "", errs.New(errs.Unavailable, "not ready: %s", answer)
	}
	return answer, nil
}

// adminTarget is where a listener of this host is reached: loopback when it
// listens everywhere.
func adminTarget(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", errs.Field("admin.address", "admin.address must be host:port, not %q", address)
	}
	if port == "0" {
		return "", errs.Field("admin.address", "admin.address must have a fixed port for a health check, not 0: set ORRERY_ADMIN_ADDRESS or --admin-address alike for both, e.g. 127.0.0.1:9090")
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}
