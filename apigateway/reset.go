package apigateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// tell returns the function that notifies users; nil if resets are disabled.
func (r PasswordReset) tell(log *slog.Logger, now func() settings.Settings) func(context.Context, account.User, string) error {
	switch {
	case r.Mail != nil:
		return func(ctx context.Context, u account.User, token string) error {
			return r.Mail.Send(ctx, u.Email, "New password for Orrery", r.letter(u, token, now().Reset))
		}
	case r.Log:
		return func(_ context.Context, u account.User, token string) error {
			log.Warn("a user asked to reset a password: the token resets it", "user", u.Username, "token", token)
			return nil
		}
	}
	return nil
}

// letter returns the text of the mail.
func (r PasswordReset) letter(u account.User, token string, life time.Duration) string {
	how := "Send this token with the new password:\n\n" + token
	if page, err := url.Parse(r.URL); r.URL != "" && err == nil {
		query := page.Query()
		query.Set("token", token)
		page.RawQuery = query.Encode()
		how = "Choose it here:\n\n" + page.String()
	}
	return fmt.Sprintf("A new password was requested for the user %s. %s\n\nThis works once, for %d minutes. If you did not request it, do nothing.\n",
		u.Username, how, int(life.Minutes()))
}
