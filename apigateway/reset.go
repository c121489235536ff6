package apigateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/settings"
	"github.com/orreryhq/orrery/libs/fleet"
)

// tell is how users are told; nil when passwords are not reset.
func (r PasswordReset) tell(log *slog.Logger, now func() settings.Settings) func(context.Context, fleet.User, string) error {
	switch {
	case r.Mail != nil:
		return func(ctx context.Context, u fleet.User, token string) error {
			return r.Mail.Send(ctx, u.Email, "Another password for Orrery", r.letter(u, token, now().Reset))
		}
	case r.Log:
		return func(_ context.Context, u fleet.User, token string) error {
			log.Warn("somebody forgot a password: the token resets it", "user", u.Username, "token", token)
			return nil
		}
	}
	return nil
}

// letter is what a user is written.
func (r PasswordReset) letter(u fleet.User, token string, life time.Duration) string {
	how := "Send this token as POST /api/v1/auth/password-reset/complete, with the new password:\n\n" + token
	if page, err := url.Parse(r.URL); r.URL != "" && err == nil {
		query := page.Query()
		query.Set("token", token)
		page.RawQuery = query.Encode()
		how = "Choose it here:\n\n" + page.String()
	}
	return fmt.Sprintf("Somebody asked for another password for the user %s. %s\n\nThis is good once, for %d minutes. If it was not you, do nothing.\n",
		u.Username, how, int(life.Minutes()))
}
