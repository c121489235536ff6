// Package oidclogin authenticates users at an OpenID Connect provider, with the authorization code
// flow, PKCE, state and nonce.
//
//	client → gateway /login → provider → gateway /callback → client → gateway /exchange
//
// The browser keeps the attempt in a sealed cookie, so any gateway can finish it. After the callback
// the client gets a sealed grant, which it exchanges for tokens with the verifier that only it knows.
// So neither the cookie nor the address of the client has a token.
//
// The provider is discovered at the first login, and again until that succeeds. So the gateway starts
// without it.
package oidclogin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/seal"
)

const (
	// AttemptTime is how long a user has to log in at the provider.
	AttemptTime = 10 * time.Minute
	// grantTime is how long a client may take to exchange its grant.
	grantTime = time.Minute
	// maxSubject bounds the length of a subject, in bytes, as OpenID Connect does.
	maxSubject = 255
	// maxSealed bounds the length of a sealed text, in bytes.
	maxSealed = 8 << 10
)

// Config describes the provider and this client of it.
type Config struct {
	// Issuer is the URL of the provider. Empty turns off logins at a provider.
	Issuer                 string
	ClientID, ClientSecret string
	Scopes                 []string
	// UsernameClaim and GroupsClaim are the claims of ID tokens with the user's name and groups.
	UsernameClaim, GroupsClaim string
	// RedirectURL returns the URL of the callback as browsers reach it.
	RedirectURL func() string
	// Seal seals attempts and grants.
	Seal seal.Box
	// Client calls the provider. It must have a timeout.
	Client *http.Client
	Now    func() time.Time
}

// Provider is the provider of a gateway. It is safe for concurrent use.
type Provider struct {
	cfg Config

	// found is nil until the provider answered once.
	found atomic.Pointer[oidc.Provider]
	// asking is the discovery in progress.
	asking singleflight.Group
}

// New returns a Provider. It does not call it.
func New(cfg Config) *Provider {
	cfg.Scopes = scopesWith(cfg.Scopes)
	return &Provider{cfg: cfg}
}

// Enabled reports whether there is a provider.
func (p *Provider) Enabled() bool { return p.cfg.Issuer != "" }

// Issuer returns the URL of the provider.
func (p *Provider) Issuer() string { return p.cfg.Issuer }

// RedirectURL returns the URL of the callback as browsers reach it.
func (p *Provider) RedirectURL() string { return p.cfg.RedirectURL() }

// Attempt is a login that was begun and not finished.
type Attempt struct {
	// State, Nonce and Verifier tie the answers of the provider to the attempt.
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	// Client is what the client of the gateway sent.
	Client    Client    `json:"client"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// Client is what a client sends to begin a login.
type Client struct {
	// RedirectURI is where the browser goes in the end.
	RedirectURI string `json:"redirectUri"`
	// State comes back with the grant.
	State string `json:"state"`
	// Challenge is the SHA-256 of a verifier, in base64url.
	Challenge string `json:"challenge"`
}

// Begin starts a login. url is the page of the provider to send the browser to, and kept the sealed
// attempt for its cookie. It returns Unavailable if the provider does not answer.
func (p *Provider) Begin(ctx context.Context, c Client) (url, kept string, err error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	a := Attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Client: c, ExpiresAt: p.cfg.Now().Add(AttemptTime)}
	url = p.client(found).AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier))
	return url, p.seal("attempt", a), nil
}

// AttemptOf opens the attempt of a cookie, and checks the state that came back. It returns Malformed if
// the login was not begun in this browser, or too long ago.
func (p *Provider) AttemptOf(kept, state string) (a Attempt, err error) {
	if !p.open("attempt", kept, &a) || subtle.ConstantTimeCompare([]byte(a.State), []byte(state)) != 1 {
		return Attempt{}, errs.New(errs.Malformed, "the answer of the login provider does not belong to a login that was begun in this browser: begin the login again, and finish it in the same browser")
	}
	if !p.cfg.Now().Before(a.ExpiresAt) {
		return Attempt{}, errs.New(errs.Malformed, "the login took longer than %d minutes: begin it again", int(AttemptTime.Minutes()))
	}
	return a, nil
}

// Finish exchanges the provider's code for an ID token, and returns the user that it proves. It returns
// Unauthenticated if the provider refuses the code or the token is not acceptable, and Unavailable if
// the provider does not answer.
func (p *Provider) Finish(ctx context.Context, a Attempt, code string) (u account.ExternalUser, err error) {
	found, err := p.discover(ctx)
	if err != nil {
		return u, err
	}
	ctx = oidc.ClientContext(ctx, p.cfg.Client)
	tokens, err := p.client(found).Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return u, p.refusedCode(err)
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return u, errs.New(errs.Unauthenticated, "the login provider sent no ID token: oidc.scopes must have openid")
	}
	token, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.cfg.ClientID, Now: p.cfg.Now}).Verify(ctx, raw)
	if err != nil {
		return u, refusedToken(err)
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1 {
		return u, errs.New(errs.Unauthenticated, "the ID token of the login provider is not for this login (wrong nonce): begin the login again")
	}
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return u, refusedToken(err)
	}
	return p.userOf(token.Issuer, token.Subject, claims)
}

// discover returns the provider's configuration, which it asks for until the provider answers.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, error) {
	if found := p.found.Load(); found != nil {
		return found, nil
	}
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), p.cfg.Client) // others wait for the answer too; the client has a timeout
	answer, err, _ := p.asking.Do("", func() (any, error) { return oidc.NewProvider(ctx, p.cfg.Issuer) })
	if mismatch, is := errors.AsType[*oidc.IssuerMismatchError](err); is {
		return nil, &errs.Error{Kind: errs.Unavailable, Err: err, Message: fmt.Sprintf("the login provider calls itself %s, not %s: set oidc.issuer to that", mismatch.Provided, p.cfg.Issuer)}
	}
	if err != nil {
		return nil, p.away(err)
	}
	found, _ := answer.(*oidc.Provider)
	p.found.Store(found)
	return found, nil
}

func (p *Provider) away(err error) error {
	return &errs.Error{
		Kind: errs.Unavailable, Err: err,
		Message: fmt.Sprintf("the login provider %s does not answer as it should: try again later, or log in with a password; an administrator sees the cause in the gateway's log", p.cfg.Issuer),
	}
}

func (p *Provider) client(found *oidc.Provider) *oauth2.Config {
	endpoint := found.Endpoint()
	endpoint.AuthStyle = authStyle(found)
	return &oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, Endpoint: endpoint, RedirectURL: p.cfg.RedirectURL(), Scopes: p.cfg.Scopes,
	}
}

// authStyle returns how the provider wants the client's secret. Trying both, as the library does by
// default, sends each refused code twice.
func authStyle(found *oidc.Provider) oauth2.AuthStyle {
	var told struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if found.Claims(&told) == nil && len(told.Methods) > 0 && !slices.Contains(told.Methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// refusedCode explains why a code was not exchanged.
func (p *Provider) refusedCode(err error) error {
	refusal, is := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !is, refusal.Response.StatusCode >= http.StatusInternalServerError:
		return p.away(err)
	case refusal.ErrorCode == "invalid_client", refusal.ErrorCode == "unauthorized_client":
		return &errs.Error{Kind: errs.Unauthenticated, Err: err, Message: "the login provider refuses this gateway: an administrator must check oidc.client-id and oidc.client-secret"}
	}
	return &errs.Error{Kind: errs.Unauthenticated, Err: err, Message: fmt.Sprintf("the login provider refuses the code (%s): it was used before or has expired; begin the login again", refusal.ErrorCode)}
}

// refusedToken explains why an ID token is not acceptable.
func refusedToken(err error) error {
	message := "the ID token of the login provider is not acceptable: " + strings.TrimPrefix(err.Error(), "oidc: ")
	if expired, is := errors.AsType[*oidc.TokenExpiredError](err); is {
		message = fmt.Sprintf("the ID token of the login provider expired at %s: check the clocks of the provider and of this gateway, and begin the login again", expired.Expiry.UTC().Format(time.RFC3339))
	}
	return &errs.Error{Kind: errs.Unauthenticated, Err: err, Message: message}
}

// userOf reads the claims of a verified token.
func (p *Provider) userOf(issuer, subject string, claims map[string]json.RawMessage) (account.ExternalUser, error) {
	u := account.ExternalUser{Issuer: issuer, Subject: subject}
	if subject == "" || len(subject) > maxSubject {
		return u, errs.New(errs.Unauthenticated, "the ID token of the login provider has no subject of 1 to %d bytes, so its user is not known", maxSubject)
	}
	var name string
	if json.Unmarshal(claims[p.cfg.UsernameClaim], &name) != nil || name == "" {
		return u, errs.New(errs.Unauthenticated, "the ID token of the login provider has no name in the claim %s: an administrator must set oidc.username-claim or oidc.scopes", p.cfg.UsernameClaim)
	}
	u.Username = strings.ToLower(name)
	var verified bool
	if json.Unmarshal(claims["email_verified"], &verified) == nil && verified {
		_ = json.Unmarshal(claims["email"], &u.Email) // without an address it stays empty
	}
	if raw, ok := claims[p.cfg.GroupsClaim]; ok && json.Unmarshal(raw, &u.Groups) != nil {
		var single string
		if json.Unmarshal(raw, &single) != nil {
			return u, errs.New(errs.Unauthenticated, "the claim %s of the login provider's ID token is no list of groups: an administrator must set oidc.groups-claim", p.cfg.GroupsClaim)
		}
		u.Groups = []string{single}
	}
	return u, nil
}

// grant is what a client exchanges for the tokens of a login.
type grant struct {
	User      string    `json:"user"`
	Login     string    `json:"login"`
	Challenge string    `json:"challenge"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// Grant returns the sealed grant for a login of a user.
func (p *Provider) Grant(user, login string, c Client) string {
	return p.seal("grant", grant{User: user, Login: login, Challenge: c.Challenge, ExpiresAt: p.cfg.Now().Add(grantTime)})
}

// errGrant does not say which check failed.
var errGrant = errs.New(errs.Unauthenticated, "the code is not valid, has expired, or was issued to another client: begin the login again")

// Redeem opens a grant for the client that has the verifier. It returns Unauthenticated if it is not
// acceptable. The caller makes sure that a login is redeemed once.
func (p *Provider) Redeem(code, verifier string) (user, login string, err error) {
	var g grant
	if !p.open("grant", code, &g) || !p.cfg.Now().Before(g.ExpiresAt) {
		return "", "", errGrant
	}
	if subtle.ConstantTimeCompare([]byte(Challenge(verifier)), []byte(g.Challenge)) != 1 {
		return "", "", errGrant
	}
	return g.User, g.Login, nil
}

// Challenge returns the challenge of a verifier (RFC 7636, S256).
func Challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// ValidChallenge reports whether a text can be a challenge.
func ValidChallenge(text string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && len(raw) == sha256.Size
}

func (p *Provider) seal(what string, value any) string {
	plain, _ := json.Marshal(value) // never fails: strings and times
	return base64.RawURLEncoding.EncodeToString(p.cfg.Seal.About("oidc " + what).Seal(plain))
}

func (p *Provider) open(what, text string, into any) bool {
	if len(text) > maxSealed {
		return false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := p.cfg.Seal.About("oidc " + what).Open(sealed)
	return err == nil && json.Unmarshal(plain, into) == nil
}

// scopesWith returns scopes, and openid if it is missing.
func scopesWith(scopes []string) []string {
	if slices.Contains(scopes, oidc.ScopeOpenID) {
		return scopes
	}
	return append([]string{oidc.ScopeOpenID}, scopes...)
}
