package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/standalone/stack"
)

// gatewayPatience limits every wait for a gateway. It is not a measurement.
const gatewayPatience = time.Minute

// gateways are API processes on one etcd, each with its own name.
type gateways struct {
	program, dir, endpoint string
}

// newGateways builds the program. dir receives logs and secrets.
func (b *bench) newGateways(ctx context.Context, name, endpoint string) (*gateways, error) {
	program, err := b.build(ctx, "./apigateway/cmd/apigateway")
	if err != nil {
		return nil, err
	}
	g := &gateways{program: program, dir: filepath.Join(b.dir, name), endpoint: endpoint}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return nil, err
	}
	return g, os.WriteFile(g.path("secret"), []byte(rand.Text()+rand.Text()), 0o600)
}

func (g *gateways) path(name string) string { return filepath.Join(g.dir, name) }

// gateway is one running gateway.
type gateway struct {
	*site.Process
	url string
	// took is the time from exec to ready.
	took time.Duration
}

var apiAddress = regexp.MustCompile(`the API is up".* address=(\S+)`)

// start starts a gateway with a new name.
func (g *gateways) start(ctx context.Context, name string) (*gateway, error) {
	return g.startAt(ctx, "http://", name)
}

// startTLS starts a gateway with a new name and a certificate that clients do not know.
func (g *gateways) startTLS(ctx context.Context, name string) (*gateway, error) {
	now := time.Now()
	authority, err := pki.NewAuthority("bench", now, now.AddDate(0, 0, 1))
	if err != nil {
		return nil, err
	}
	pair, err := authority.Issue(pki.Request{Name: "bench", Hosts: []string{"127.0.0.1"}, Server: true, Now: now, Until: now.AddDate(0, 0, 1)})
	if err != nil {
		return nil, err
	}
	cert, key := g.path("cert.pem"), g.path("key.pem")
	if err := errors.Join(os.WriteFile(cert, pair.Cert, 0o600), os.WriteFile(key, pair.Key, 0o600)); err != nil {
		return nil, err
	}
	return g.startAt(ctx, "https://", name, "--tls-cert", cert, "--tls-key", key)
}

func (g *gateways) startAt(ctx context.Context, scheme, name string, flags ...string) (*gateway, error) {
	log := g.path(name + ".log")
	p := site.NewProcess(name, g.program, log, append([]string{
		"--etcd-endpoints", g.endpoint, "--cluster-secret-file", g.path("secret"), "--listen", "127.0.0.1:0", "--replica", name,
		"--admin-password-file", g.path("admin-password"), "--limits-anonymous", "0", "--limits-logins", "0", "--limits-streams", "1000", "--log-level", "info",
	}, flags...)...)
	began := time.Now()
	if err := p.Start(); err != nil {
		return nil, err
	}
	for time.Since(began) < gatewayPatience && p.Running() {
		text, err := os.ReadFile(log)
		if err != nil {
			break
		}
		if found := apiAddress.FindSubmatch(text); found != nil {
			return &gateway{Process: p, url: scheme + string(found[1]), took: time.Since(began)}, nil
		}
		if !pause.For(ctx, time.Millisecond) {
			break
		}
	}
	p.Kill()
	text, _ := os.ReadFile(log)
	return nil, fmt.Errorf("%s does not serve: %w\n%s", name, ctx.Err(), text)
}

// login returns a token that is valid at all gateways.
func (g *gateways) login(ctx context.Context, at *gateway) (string, error) {
	return stack.Login(ctx, at.url, "admin", g.path("admin-password"))
}

// get requests a path and returns the body.
func get(ctx context.Context, client *http.Client, url, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return answer(client, req)
}

// getPacked is get with gzip, and returns the compressed bytes.
func getPacked(ctx context.Context, client *http.Client, url, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept-Encoding", "gzip") // set explicitly, so that the client does not decompress
	return answer(client, req)
}

func answer(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	return answered(req.URL.String(), resp)
}
