package instanceops

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Backups lists the backups of a static instance. Errors are those of Files and client.Backups.
func (o *Instances) Backups(ctx context.Context, ref string) (client.Backups, error) {
	i, err := o.placed(ref)
	if err != nil {
		return client.Backups{}, err
	}
	return o.agents.Backups(ctx, i)
}

// Backup returns a backup of a static instance. It waits for its end, for at most within. Errors are those
// of Backups, and NotFound with the field backup.
func (o *Instances) Backup(ctx context.Context, ref, backup string, within time.Duration) (client.Backup, error) {
	i, err := o.backedUp(ref, backup)
	if err != nil {
		return client.Backup{}, err
	}
	return o.agents.Backup(ctx, i, backup, within)
}

// backupID is the form of the IDs that agents give.
var backupID = regexp.MustCompile(`^\d{8}-\d{6}-[a-z0-9]{4}$`)

// backedUp returns an instance that may have a backup. NotFound with the field backup if no backup has this ID.
func (o *Instances) backedUp(ref, backup string) (*fleet.Instance, error) {
	i, err := o.placed(ref)
	if err == nil && !backupID.MatchString(backup) {
		err = &errs.Error{Kind: errs.NotFound, Field: "backup", Message: "instance " + i.Intent.Name + " has no backup " + txn.Clip(backup) + ": list its backups"}
	}
	return i, err
}

// CreateBackup begins a backup of a static instance, and audits it. Errors are those of Files and
// client.CreateBackup.
func (o *Instances) CreateBackup(ctx context.Context, by txn.Actor, ref string, want schedule.BackupSettings, dryRun bool) (b client.Backup, err error) {
	i, err := o.editable(ref)
	if err != nil {
		return b, err
	}
	n := client.NewBackup{By: by.User, Keep: want.Keep, Before: want.Before, Until: want.Until, After: want.After, DryRun: dryRun}
	if dryRun {
		return o.agents.CreateBackup(ctx, i, n)
	}
	err = o.OutsideNoting(ctx, by, backupEntry(i, "create", ""), func(said *txn.Entry) (err error) {
		b, err = o.agents.CreateBackup(ctx, i, n)
		said.Details = b.ID
		return err
	})
	return b, err
}

// BackupDone is CreateBackup that waits for the end of the backup. It returns a summary. Conflict if it failed.
func (o *Instances) BackupDone(ctx context.Context, by txn.Actor, ref string, want schedule.BackupSettings) (string, error) {
	b, err := o.CreateBackup(ctx, by, ref, want, false)
	if err != nil {
		return "", err
	}
	node := o.nodeOf(ref)
	for failures := 0; !b.Ends(); {
		next, err := o.Backup(ctx, ref, b.ID, upstream.MaxBackupWait)
		switch {
		case err == nil:
			b, failures = next, 0
		case o.nodeOf(ref) != node:
			return "", errs.New(errs.Conflict, "instance %s left node %s during backup %s", txn.Clip(ref), node, b.ID)
		case errs.Is(err, errs.NotFound) && errs.FieldOf(err) == "backup":
			return "", errs.New(errs.Conflict, "the node's agent was restarted, and backup %s was not complete", b.ID)
		case failures == maxUnanswered || !pause.Jittered(ctx, unansweredPause):
			return "", errs.New(errs.Unavailable, "it is unknown whether backup %s ended: %s", b.ID, errs.MessageOf(err))
		default:
			failures++
		}
	}
	if b.State == client.BackupFailed {
		return "", errs.New(errs.Conflict, "%s", b.Message)
	}
	done := fmt.Sprintf("backup %s: %d MiB of %d MiB", b.ID, mib(b.Size), mib(b.Bytes))
	if b.Changed > 0 {
		done += fmt.Sprintf(", %d files changed while they were read", b.Changed)
	}
	return done, nil
}

// nodeOf returns the node of an instance; "" if it has none or does not exist.
func (o *Instances) nodeOf(ref string) fleet.NodeID {
	i, err := o.Find(ref)
	if err != nil {
		return ""
	}
	return i.Node()
}

// The node's agent may be away for maxUnanswered times unansweredPause while a backup is waited for.
const (
	maxUnanswered   = 60
	unansweredPause = 5 * time.Second
)

func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// RestoreBackup begins to replace the directory of a static instance by a backup, and audits it. Conflict
// unless the instance has ended. Other errors are those of Backup and client.RestoreBackup.
func (o *Instances) RestoreBackup(ctx context.Context, by txn.Actor, ref, backup string, dryRun bool) (b client.Backup, err error) {
	i, err := o.backedUp(ref, backup)
	if err == nil {
		err = unmoved(o.Snapshot(), i)
	}
	if err == nil && !i.Terminal() {
		err = errs.New(errs.Conflict, "instance %s %s: stop it first, because its directory is replaced as a whole", i.Intent.Name, i.State().Text())
	}
	if err == nil {
		b, err = o.agents.RestoreBackup(ctx, i, backup, true) // a refused request is not audited
	}
	if err != nil || dryRun {
		return b, err
	}
	err = o.Outside(ctx, by, backupEntry(i, "restore", backup), func() (err error) {
		b, err = o.agents.RestoreBackup(ctx, i, backup, false)
		return err
	})
	return b, err
}

// DeleteBackup removes a backup of a static instance, and audits it. Errors are those of Backup and
// client.DeleteBackup.
func (o *Instances) DeleteBackup(ctx context.Context, by txn.Actor, ref, backup string, dryRun bool) (b client.Backup, err error) {
	i, err := o.backedUp(ref, backup)
	if err == nil {
		b, err = o.agents.DeleteBackup(ctx, i, backup, true)
	}
	if err != nil || dryRun {
		return b, err
	}
	err = o.Outside(ctx, by, backupEntry(i, "delete", backup), func() (err error) {
		b, err = o.agents.DeleteBackup(ctx, i, backup, false)
		return err
	})
	return b, err
}

func backupEntry(i *fleet.Instance, verb, details string) txn.Entry {
	return txn.Entry{Action: "instance.backup." + verb, Resource: "instance", ID: string(i.Intent.ID), Details: txn.Clip(details)}
}
