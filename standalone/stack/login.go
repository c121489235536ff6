package stack

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

// Login logs in over the API with the password in a file and returns the token. It fails
// with Unauthenticated for a wrong password, and with NotFound when the file does not
// exist.
func Login(ctx context.Context, api, user, passwordFile string) (token string, err error) {
	return login(ctx, nil, api, user, passwordFile)
}

// Login logs in as the first user.
func (r Ready) Login(ctx context.Context) (token string, err error) {
	return login(ctx, r.TLS, r.Own, r.User, r.PasswordFile)
}

func login(ctx context.Context, config *tls.Config, api, user, passwordFile string) (token string, err error) {
	password, err := os.ReadFile(passwordFile)
	if err != nil {
		return "", errs.WrapAs(errs.NotFound, "stack.Login", err)
	}
	var answer struct {
		Token string `json:"token"`
	}
	err = call(ctx, config, wire.Request{
		Method: http.MethodPost, URL: api + "/api/v1/auth/login",
		Body: map[string]string{"username": user, "password": strings.TrimSpace(string(password))},
	}, &answer)
	return answer.Token, errs.Wrap("stack.Login", err)
}

// CreateGroup creates a group through the API. It fails with Conflict when the name is
// taken.
func (r Ready) CreateGroup(ctx context.Context, token string, spec map[string]any) error {
	q := wire.Request{Method: http.MethodPost, URL: r.Own + "/api/v1/groups", Token: token, Body: spec}
	return errs.Wrap("stack.CreateGroup", call(ctx, r.TLS, q, nil))
}

// PatchGroup changes the given fields of a group through the API.
func (r Ready) PatchGroup(ctx context.Context, token, name string, fields map[string]any) error {
	q := wire.Request{Method: http.MethodPatch, URL: r.Own + "/api/v1/groups/" + name, Token: token, Body: fields}
	return errs.Wrap("stack.PatchGroup", call(ctx, r.TLS, q, nil))
}

// call sends one request on its own connection. config may be nil.
func call(ctx context.Context, config *tls.Config, r wire.Request, into any) error {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}
	return wire.Call(ctx, &http.Client{Transport: transport}, r, into)
}
