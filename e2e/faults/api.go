package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// api is a client for the admin that uses any responding gateway.
type api struct {
	gateways     []string
	passwordFile string
	token        string
	http         *http.Client
}

func newAPI(gateways []string, passwordFile string) *api {
	return &api{gateways: gateways, passwordFile: passwordFile, http: &http.Client{Timeout: 5 * time.Second}}
}

// statusError is a response other than success.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

// do sends a request to the gateways in turn until one answers.
func (a *api) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	if a.token == "" && !strings.HasSuffix(path, "/login") {
		if err := a.login(ctx); err != nil {
			return nil, err
		}
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("there is no gateway")
	for _, url := range a.gateways {
		var answer []byte
		if answer, err = a.ask(ctx, method, url+path, payload); err == nil {
			return answer, nil
		}
	}
	return nil, fmt.Errorf("%s %s: %w", method, path, err)
}

func (a *api) ask(ctx context.Context, method, url string, payload []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, &statusError{status: resp.StatusCode, body: strings.TrimSpace(string(b))}
	}
	return b, nil
}

func (a *api) login(ctx context.Context) error {
	password, err := os.ReadFile(a.passwordFile)
	if err != nil {
		return err
	}
	b, err := a.do(ctx, http.MethodPost, "/api/v1/auth/login", map[string]string{"username": "admin", "password": strings.TrimSpace(string(password))})
	if err != nil {
		return err
	}
	var answer struct{ Token string }
	if err := json.Unmarshal(b, &answer); err != nil {
		return err
	}
	a.token = answer.Token
	return nil
}

func (a *api) close() { a.http.CloseIdleConnections() }
