package content

import (
	"context"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/spf13/cobra"
)

func secretRotateKey(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "rotate-key", Short: "Seal all secrets with a new key",
		Long: `It makes a new version of the key that seals stored secrets, second factors, credentials of sources, targets of notices and
signing keys, seals all of them again, and retires the previous versions. Servers and services run on. If it was cut off, run it
again: it continues. The key of seal.key, which wraps the versions, stays the same; to replace that, write the new key as the
first line of the file, keep the previous one as the second line, restart the services, and run this command.`,
		Example: "orrery secret rotate-key",
		Run: func(ctx context.Context, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			done, err := client.RotateSealingKey(ctx)
			if err != nil {
				return err
			}
			current := ""
			if done.Current != nil {
				current = *done.Current
			}
			return a.Show(done, current, func(output.Printer) error {
				if err := a.Linef("version %s seals now; %d records were sealed again", current, done.Resealed); err != nil {
					return err
				}
				for _, name := range done.Unreadable {
					if err := a.Linef("%s cannot be opened with any known key and stays as it is: store it again", name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	})
}
