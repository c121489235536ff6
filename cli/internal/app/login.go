package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/cli/internal/settings"
	orrery "github.com/orreryhq/orrery/sdk"
)

// tokens is what the server answers to a login and to a refresh.
type tokens struct {
	Token            string `json:"token"`
	RefreshToken     string `json:"refreshToken"`
	ExpiresInSeconds int64  `json:"expiresInSeconds"`
}

// NewLogin returns the login of tokens that the server just issued.
func NewLogin(token, refreshToken string, seconds int64) *settings.Login {
	expires := time.Now().Add(time.Duration(seconds) * time.Second).UTC().Truncate(time.Second)
	return &settings.Login{Token: token, RefreshToken: refreshToken, ExpiresAt: expires}
}

// LogIn exchanges a password for a login. code is that of the user's second factor; it may be empty.
func LogIn(ctx context.Context, client *orrery.Client, username, password, code string) (*settings.Login, error) {
	body := map[string]string{"username": username, "password": password}
	if code != "" {
		body["code"] = code // servers of earlier versions refuse the field
	}
	return exchange(ctx, client, "login", body)
}

// NeedsCode reports whether a login was refused because the user has a second factor and sent no code.
func NeedsCode(err error) bool {
	refusal, ok := errors.AsType[*orrery.Error](err)
	return ok && refusal.Code == "SECOND_FACTOR_REQUIRED"
}

func refresh(ctx context.Context, client *orrery.Client, refreshToken string) (*settings.Login, error) {
	return exchange(ctx, client, "refresh", map[string]string{"refreshToken": refreshToken})
}

func exchange(ctx context.Context, client *orrery.Client, route string, body any) (*settings.Login, error) {
	var answer tokens
	if err := client.Call(ctx, orrery.Request{Method: http.MethodPost, Path: "/api/v1/auth/" + route, Body: body}, &answer); err != nil {
		return nil, err
	}
	return NewLogin(answer.Token, answer.RefreshToken, answer.ExpiresInSeconds), nil
}
