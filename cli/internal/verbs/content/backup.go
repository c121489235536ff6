package content

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/progress"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/spf13/cobra"
)

func backupCommand(a *app.App) *cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "backup", Aliases: []string{"backups"},
		Short: "Back up and restore static instances",
		Long: `A backup is an archive of the whole directory of a static instance. It is stored on the instance's node. A schedule with the
action backup makes them at set times.`,
		Example: `orrery backup create survival-1 --wait
orrery backup list survival-1
orrery backup restore survival-1 20261130-164500-k3fq --yes --wait`,
	})
	cmd.AddCommand(backupCreate(a), backupList(a), backupRestore(a), backupDelete(a))
	return cmd
}

// The states of a backup that are not final.
const (
	backupRunning   = "RUNNING"
	backupRestoring = "RESTORING"
)

// backupFailed is the state of a backup without an archive.
const backupFailed = "FAILED"

// backupsOfInstance is the list of the backups of an instance.
func backupsOfInstance() *kinds.Kind {
	p := command.Part("backups", "/api/v1/services/{group}/backups", "id", []output.Column{
		{Header: "ID", Path: "id"},
		{Header: "STATE", Path: "state", State: true},
		{Header: "BY", Path: "by"},
		{Header: "BEGUN", Path: "begunAt", Text: kinds.MomentCell},
		{Header: "FILES", Path: "files"},
		{Header: "SIZE", Path: "sizeBytes", Text: kinds.SizeCell},
		{Header: "ARCHIVE", Path: "archiveBytes", Text: kinds.SizeCell},
		{Header: "MESSAGE", Path: "message"},
		{Header: "CHANGED", Path: "changedFiles", Wide: true},
		{Header: "RESTORED", Path: "restoredAt", Text: kinds.MomentCell, Wide: true},
		{Header: "PATH", Path: "path", Wide: true},
	})
	p.Data = "backups"
	return p
}

// completeBackups completes an instance and then its backups; more says that there may be several.
func completeBackups(a *app.App, more bool) cobra.CompletionFunc {
	return command.CompleteFirst(a, "instance", func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !more {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return command.NamesIn(cmd.Context(), a, backupsOfInstance(), cmd.Flags().Arg(0)), cobra.ShellCompDirectiveNoFileComp
	})
}

// onBackup runs an act on a backup of an instance.
func onBackup(ctx context.Context, a *app.App, instance string, act func(client *orrery.Client) error) error {
	return command.OnObject(ctx, a, "instance", instance, func(client *orrery.Client) error {
		err := act(client)
		if errors.Is(err, orrery.ErrNotFound) {
			return exit.Hint(err, "orrery backup list "+instance+" lists the backups")
		}
		return err
	})
}

// backupOptions are the flags of backup create.
type backupOptions struct {
	body         orrery.CreateInstanceBackupRequest
	wait, dryRun bool
}

func backupCreate(a *app.App) *cobra.Command {
	var o backupOptions
	cmd := command.New(a, command.Spec{
		Use: "create INSTANCE", Short: "Back up a static instance, running or not",
		Long: `A server that writes while it is read may leave an archive with files that do not fit together. Pass console lines with
--before and --after that make it stop writing and let it write again. They are sent only to a server that runs.`,
		Example: `orrery backup create survival-1 --wait
orrery backup create survival-1 --keep 7 --dry-run
orrery backup create survival-1 --before save-off --before 'save-all flush' --until 'Saved the game' --after save-on --wait`,
		Args: command.Between(1, 1, "the name of an instance"), Complete: command.CompleteFirst(a, "instance", nil),
		Run: func(ctx context.Context, args []string) error { return createBackup(ctx, a, o, args[0]) },
	})
	flags := cmd.Flags()
	command.OptionalNumber(flags, &o.body.Keep, "keep", "delete your oldest backups of the instance until this `number` remains; 0 keeps all")
	flags.StringArrayVar(&o.body.Before, "before", nil, "console `line` that makes the server write its data and stop changing it; may be repeated")
	command.OptionalText(flags, &o.body.Until, "until", "`text` in a line that the server prints when it has done so", nil)
	flags.StringArrayVar(&o.body.After, "after", nil, "console `line` that lets the server change its data again; may be repeated")
	command.NoCompletions(cmd)
	command.DryRunFlag(a, cmd, &o.dryRun)
	flags.BoolVar(&o.wait, "wait", false, "return when the backup has ended, and fail if it failed")
	cmd.MarkFlagsMutuallyExclusive("wait", "dry-run")
	return cmd
}

func createBackup(ctx context.Context, a *app.App, o backupOptions, instance string) error {
	if len(o.body.Before) == 0 {
		const hint = "add --before LINE"
		switch {
		case o.body.Until != nil:
			return command.UsageError(hint, "--until has a meaning only with --before: the server prints the text because of that line")
		case len(o.body.After) > 0:
			return command.UsageError(hint, "--after has a meaning only with --before: it ends what that line began")
		}
	}
	return command.OnObject(ctx, a, "instance", instance, func(client *orrery.Client) error {
		if o.dryRun {
			planned, err := client.CreateInstanceBackupDryRun(ctx, instance, &o.body)
			if err != nil {
				return err
			}
			return a.Say(planned, "", "instance %s would be backed up", instance)
		}
		begun, err := client.CreateInstanceBackup(ctx, instance, &o.body)
		if err != nil {
			return err
		}
		if !o.wait {
			return a.Say(begun, begun.ID, "backup %s of instance %s began; orrery backup list %s shows its end", begun.ID, instance, instance)
		}
		return awaitCreated(ctx, a, client, instance, begun)
	})
}

// awaitCreated waits for the end of a backup, and says what it has.
func awaitCreated(ctx context.Context, a *app.App, client *orrery.Client, instance string, begun *orrery.InstanceBackup) error {
	b, err := followBackup(ctx, a, client, instance, begun)
	switch {
	case errors.Is(err, orrery.ErrNotFound):
		text := fmt.Sprintf("backup %s was not completed: %v", begun.ID, err) // not the error itself: the name of the instance is right
		return exit.With(exit.Failed, errors.New(text), "the node's agent may have been restarted: back up again")
	case err != nil:
		return err
	case b.State == backupFailed:
		return exit.With(exit.Failed, fmt.Errorf("backup %s of instance %s failed: %s", b.ID, instance, b.Message), "")
	}
	if b.ChangedFiles > 0 {
		a.Notef("%s changed while the backup read them: stop the instance, or make it stop writing with --before", output.Counted(b.ChangedFiles, "file"))
	}
	return a.Say(b, b.ID, "backup %s of instance %s is complete: %s in an archive of %s", b.ID, instance, contents(b), kinds.Size(b.ArchiveBytes))
}

// contents says how much a backup has.
func contents(b *orrery.InstanceBackup) string {
	return output.Counted(b.Files, "file") + ", " + kinds.Size(b.SizeBytes)
}

const (
	// backupWait is how long one request waits for the end of a backup, in seconds.
	backupWait = 8
	// backupRetry is how long after a failed request the backup is read again.
	backupRetry = time.Second
)

// followBackup shows how far a backup or a restore is, until it has ended. It returns the backup as it is then.
func followBackup(ctx context.Context, a *app.App, client *orrery.Client, instance string, b *orrery.InstanceBackup) (*orrery.InstanceBackup, error) {
	line := progress.NewLine(a)
	defer line.Clear()
	what := "backup"
	if b.State == backupRestoring {
		what = "restore"
	}
	for b.State == backupRunning || b.State == backupRestoring {
		state := fmt.Sprintf("backup %s of instance %s is %s: %s", b.ID, instance, b.State, contents(b))
		line.Show(state)
		next, err := client.GetInstanceBackup(ctx, instance, b.ID, &orrery.GetInstanceBackupParams{WaitSeconds: backupWait})
		switch {
		case err == nil:
			b = next
			continue
		case ctx.Err() != nil: // the end of the command
		case errors.Is(err, orrery.ErrUnavailable), errors.Is(err, orrery.ErrUnreachable):
			line.Show(fmt.Sprintf("backup %s cannot be read now; it is tried again: %v", b.ID, err))
		default:
			return b, err
		}
		select {
		case <-time.After(backupRetry):
		case <-ctx.Done():
			return b, exit.Hint(ctx.Err(), fmt.Sprintf("the last state: %s; the %s continues on the node: orrery backup list %s shows its end", state, what, instance))
		}
	}
	return b, nil
}

func backupList(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "list INSTANCE", Aliases: []string{"ls"}, Short: "List the backups of an instance",
		Long: "The newest is first. -o wide also shows where the archives are. A failed backup is listed until the node's agent restarts.",
		Example: `orrery backup list survival-1
orrery backup list survival-1 -o wide`,
		Args: command.Between(1, 1, "the name of an instance"), Complete: command.CompleteFirst(a, "instance", nil),
		Run: func(ctx context.Context, args []string) error {
			return command.PrintPart(ctx, a, backupsOfInstance(), kinds.Get("instance"), args[0], nil)
		},
	})
}

// restoreOptions are the flags of backup restore.
type restoreOptions struct{ yes, wait, dryRun bool }

func backupRestore(a *app.App) *cobra.Command {
	var o restoreOptions
	cmd := command.New(a, command.Spec{
		Use: "restore INSTANCE BACKUP", Short: "Replace the directory of a stopped instance by a backup",
		Long: `The whole directory is replaced in one step, after the archive was unpacked and verified. The replaced directory is kept on
the node for a day. If the group keeps a minimum of instances, freeze the instance before you stop it, and unfreeze it afterwards.`,
		Example: `orrery backup restore survival-1 20261130-164500-k3fq --dry-run
orrery backup restore survival-1 20261130-164500-k3fq --yes --wait`,
		Args: command.Between(2, 2, "the name of an instance and the ID of a backup"), Complete: completeBackups(a, false),
		Run: func(ctx context.Context, args []string) error {
			return onBackup(ctx, a, args[0], func(client *orrery.Client) error { return restoreBackup(ctx, a, client, o, args[0], args[1]) })
		},
	})
	flags := cmd.Flags()
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	command.DryRunFlag(a, cmd, &o.dryRun)
	flags.BoolVar(&o.wait, "wait", false, "return when the restore has ended, and fail if it failed")
	cmd.MarkFlagsMutuallyExclusive("wait", "dry-run")
	return cmd
}

func restoreBackup(ctx context.Context, a *app.App, client *orrery.Client, o restoreOptions, instance, id string) error {
	planned, err := client.RestoreInstanceBackupDryRun(ctx, instance, id)
	if err != nil {
		return stopFirst(ctx, client, err, instance)
	}
	what := fmt.Sprintf("the whole directory of instance %s by backup %s of %s (%s)", instance, id, kinds.Moment(planned.BegunAt), contents(planned))
	switch {
	case o.dryRun:
		return a.Say(planned, id, "would replace %s, and keep the replaced directory on the node for a day", what)
	case !o.yes:
		if err := a.Confirm("replace "+what+", and keep the replaced directory on the node for a day?", "--yes"); err != nil {
			return err
		}
	}
	begun, err := client.RestoreInstanceBackup(ctx, instance, id)
	if err != nil {
		return stopFirst(ctx, client, err, instance)
	}
	if !o.wait {
		return a.Say(begun, id, "replacing %s, and keeping the replaced directory on the node for a day; orrery backup list %s shows the end", what, instance)
	}
	return awaitRestored(ctx, a, client, instance, begun)
}

// stopFirst adds to a refused restore of a running instance how to stop it.
func stopFirst(ctx context.Context, client *orrery.Client, err error, instance string) error {
	if !errors.Is(err, orrery.ErrConflict) {
		return err
	}
	if i, getErr := client.GetInstance(ctx, instance); getErr != nil || i.FinishedAt != nil {
		return err
	}
	return exit.Hint(err, fmt.Sprintf("orrery freeze %s && orrery stop %s --wait, and orrery unfreeze %s after the restore", instance, instance, instance))
}

// awaitRestored waits for the end of a restore, and says what it did. A restore that failed leaves a message, and one that
// the agent could not finish leaves nothing.
func awaitRestored(ctx context.Context, a *app.App, client *orrery.Client, instance string, begun *orrery.InstanceBackup) error {
	b, err := followBackup(ctx, a, client, instance, begun)
	switch {
	case err != nil:
		return err
	case b.Message != "":
		return exit.With(exit.Failed, fmt.Errorf("backup %s of instance %s %s", b.ID, instance, b.Message), "the directory is as it was")
	case b.RestoredAt == nil || begun.RestoredAt != nil && b.RestoredAt.Equal(*begun.RestoredAt):
		err := fmt.Errorf("it is unknown whether backup %s of instance %s was restored: the node's agent was restarted", b.ID, instance)
		return exit.With(exit.Failed, err, "look at the files: orrery file ls "+instance)
	}
	return a.Say(b, b.ID, "backup %s is restored: it replaced the whole directory of instance %s (%s), and the replaced directory is kept on the node for a day", b.ID, instance, contents(b))
}

func backupDelete(a *app.App) *cobra.Command {
	var yes, dryRun bool
	cmd := command.New(a, command.Spec{
		Use: "delete INSTANCE BACKUP...", Aliases: []string{"rm", "remove"}, Short: "Delete backups of an instance, or cancel one that runs",
		Example: `orrery backup delete survival-1 20261130-164500-k3fq --dry-run
orrery backup delete survival-1 20261130-164500-k3fq --yes`,
		Args: command.Between(2, -1, "the name of an instance and the ID of a backup"), Complete: completeBackups(a, true),
		Run: func(ctx context.Context, args []string) error {
			instance, ids := args[0], args[1:]
			if !yes && !dryRun {
				question := fmt.Sprintf("delete backup %s of instance %s?", strings.Join(ids, ", "), instance)
				if err := a.Confirm(question, "--yes"); err != nil {
					return err
				}
			}
			return command.Each(ctx, a, ids, func(id string) error {
				return onBackup(ctx, a, instance, func(client *orrery.Client) error { return deleteBackup(ctx, a, client, instance, id, dryRun) })
			})
		},
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	command.DryRunFlag(a, cmd, &dryRun)
	return cmd
}

func deleteBackup(ctx context.Context, a *app.App, client *orrery.Client, instance, id string, dryRun bool) error {
	remove := client.DeleteInstanceBackup
	if dryRun {
		remove = client.DeleteInstanceBackupDryRun
	}
	b, err := remove(ctx, instance, id)
	if err != nil {
		return err
	}
	if b.State == "RUNNING" {
		return a.Say(b, id, "backup %s of instance %s %scanceled", id, instance, wouldBe(dryRun))
	}
	return a.Say(b, id, "backup %s of instance %s %sdeleted", id, instance, wouldBe(dryRun))
}
