package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func secondFactor(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "second-factor", Short: "Require a code of an authenticator for your logins",
		Long: `An authenticator is an app, for example on a phone, that shows a new code every 30 seconds. With a second factor,
a login needs a code besides the password. API tokens need none.`,
		Example: `orrery second-factor enrol --password-file secret
orrery second-factor confirm --code 123456
orrery second-factor status`,
	})
	cmd.AddCommand(factorStatus(a), factorEnrol(a), factorConfirm(a), factorDisable(a))
	return cmd
}

func factorStatus(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "status", Short: "Show whether your logins need a code",
		Example: "orrery second-factor status",
		Run: func(ctx context.Context, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			state, err := client.GetSecondFactor(ctx)
			if err != nil {
				return err
			}
			if !state.Enabled {
				return a.Say(state, "disabled", "your logins need no code")
			}
			return a.Say(state, "enabled", "your logins need a code; %d recovery codes are left", state.RecoveryCodesLeft)
		},
	})
}

func factorEnrol(a *app.App) *cobra.Command {
	var file string
	cmd := command.New(a, command.Spec{
		Use: "enrol", Aliases: []string{"enroll"}, Short: "Get the secret for an authenticator",
		Long: `It prints the secret as an otpauth:// URI, and in letters for typing. Then it asks for a code of the authenticator,
confirms with it and prints the recovery codes. Without a terminal, confirm within 15 minutes with orrery second-factor confirm.`,
		Example: "orrery second-factor enrol --password-file secret",
		Run:     func(ctx context.Context, _ []string) error { return enrol(ctx, a, file) },
	})
	cmd.Flags().StringVar(&file, "password-file", "", "`file` with your password; - is standard input")
	return cmd
}

func enrol(ctx context.Context, a *app.App, passwordFile string) error {
	password, err := a.ReadSecret(passwordFile, "your password", "--password-file FILE")
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	begun, err := client.EnrolSecondFactor(ctx, &orrery.SecondFactorRequest{CurrentPassword: password})
	if err != nil {
		return err
	}
	if err := a.Say(begun, begun.URI, "URI: %s\nsecret: %s", begun.URI, begun.Secret); err != nil {
		return err
	}
	if !a.Interactive || a.Flags.NoInput || a.Flags.Output != "" {
		a.Notef("your logins need no code yet; confirm within 15 minutes: orrery second-factor confirm --code CODE")
		return nil
	}
	code, err := askCode(a)
	if err != nil {
		return err
	}
	return confirm(ctx, a, client, code)
}

func factorConfirm(a *app.App) *cobra.Command {
	var code string
	cmd := command.New(a, command.Spec{
		Use: "confirm", Short: "Enable the second factor with a code, and get recovery codes",
		Long:    "From then on your logins need a code. Keep the ten recovery codes: each works once instead of a code.",
		Example: "orrery second-factor confirm --code 123456",
		Run: func(ctx context.Context, _ []string) error {
			code, err := givenCode(a, code)
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			return confirm(ctx, a, client, code)
		},
	})
	codeFlag(cmd, &code)
	return cmd
}

func codeFlag(cmd *cobra.Command, code *string) {
	cmd.Flags().StringVar(code, "code", "", "`code` of your authenticator; the default is ORRERY_CODE")
	command.CompleteFlag(cmd, "code", cobra.NoFileCompletions)
}

// givenCode returns the code of the flag or the environment, or asks for one.
func givenCode(a *app.App, flag string) (string, error) {
	if code := cmp.Or(flag, a.Env("ORRERY_CODE")); code != "" {
		return code, nil
	}
	return askCode(a)
}

func confirm(ctx context.Context, a *app.App, client *orrery.Client, code string) error {
	done, err := client.ConfirmSecondFactor(ctx, &orrery.SecondFactorCode{Code: code})
	if err != nil {
		return err
	}
	codes := strings.Join(done.RecoveryCodes, "\n")
	return a.Say(done, codes, "your logins need a code now. Keep these recovery codes in a safe place; each works once:\n%s", codes)
}

func factorDisable(a *app.App) *cobra.Command {
	var code string
	cmd := command.New(a, command.Spec{
		Use: "disable", Short: "Log in without a code again",
		Example: "orrery second-factor disable --code 123456",
		Run: func(ctx context.Context, _ []string) error {
			code, err := givenCode(a, code)
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			done, err := client.DisableSecondFactor(ctx, &orrery.SecondFactorCode{Code: code})
			if errors.Is(err, orrery.ErrDenied) {
				return exit.Hint(err, "wait for the next code, or pass a recovery code")
			}
			if err != nil {
				return err
			}
			return a.Say(done, "", "your logins need no code")
		},
	})
	codeFlag(cmd, &code)
	return cmd
}

func userFactor(a *app.App) *cobra.Command {
	var yes bool
	cmd := command.New(a, command.Spec{
		Use: "remove-second-factor NAME", Short: "Let a user log in without a code",
		Long:    "For users who have lost their authenticator and their recovery codes. Make sure that it is the user who asks.",
		Example: "orrery user remove-second-factor alice --yes",
		Args:    command.Between(1, 1, "the name of a user"), Complete: command.CompleteFirst(a, "user", nil),
		Run: func(ctx context.Context, args []string) error {
			name := args[0]
			if !yes {
				if err := a.Confirm(fmt.Sprintf("let %s log in with the password alone?", name), "--yes"); err != nil {
					return err
				}
			}
			return command.OnObject(ctx, a, "user", name, func(client *orrery.Client) error {
				if err := client.DeleteUserSecondFactor(ctx, name); err != nil {
					return err
				}
				return a.Say(map[string]any{"id": name}, name, "%s has no second factor any more", name)
			})
		},
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}
