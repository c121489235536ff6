package settings

import (
	"context"
	"errors"
	"time"

	orrery "github.com/orreryhq/orrery/sdk"
)

// Credentials are the login of a context. A login that expired is refreshed and stored.
type Credentials struct {
	store   *Store
	context string
	refresh func(ctx context.Context, refreshToken string) (*Login, error)
}

// Credentials returns those of a context. refresh exchanges a refresh token for a new login.
func (s *Store) Credentials(context string, refresh func(context.Context, string) (*Login, error)) *Credentials {
	return &Credentials{store: s, context: context, refresh: refresh}
}

// earlyRefresh is how long before its end a token is replaced.
const earlyRefresh = 10 * time.Second

// Token returns the token of the login; empty without a login. If the token has expired or was
// rejected, Token refreshes the login. Only one program refreshes at a time, because a refresh token
// works once.
func (c *Credentials) Token(ctx context.Context, rejected string) (string, error) {
	file, err := c.store.Read()
	if err != nil {
		return "", err
	}
	login := c.current(file)
	if login == nil {
		return "", nil
	}
	if usable(login, rejected) || login.RefreshToken == "" {
		return login.Token, nil
	}
	token := login.Token
	err = c.store.Change(ctx, func(file *File) error {
		login := c.current(file)
		if login == nil || usable(login, rejected) {
			if login != nil {
				token = login.Token // another program refreshed it
			}
			return nil
		}
		fresh, err := c.refresh(ctx, login.RefreshToken)
		if err != nil {
			return err
		}
		token = fresh.Token
		c.store.SetLogin(file.Find(c.context), fresh)
		return nil
	})
	if errors.Is(err, orrery.ErrUnauthenticated) || errors.Is(err, orrery.ErrInvalid) {
		return token, nil // the login has ended; the request will say so
	}
	return token, err
}

func (c *Credentials) current(file *File) *Login {
	if context := file.Find(c.context); context != nil {
		return c.store.LoginOf(context)
	}
	return nil
}

// usable reports whether the token of a login can be sent.
func usable(login *Login, rejected string) bool {
	expired := !login.ExpiresAt.IsZero() && time.Until(login.ExpiresAt) < earlyRefresh
	return login.Token != rejected && !expired
}
