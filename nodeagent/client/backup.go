package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// BackupState is the progress of a backup.
type BackupState string

// The states.
const (
	BackupRunning  BackupState = "RUNNING"
	BackupComplete BackupState = "COMPLETE"
	// BackupFailed has a message and no archive. The agent remembers the last failure of an instance until
	// it restarts.
	BackupFailed BackupState = "FAILED"
	// BackupRestoring is a complete backup that is being restored.
	BackupRestoring BackupState = "RESTORING"
)

// Backup is an archive of the directory of a static instance, on the node of the instance.
type Backup struct {
	ID    string      `json:"id"`
	State BackupState `json:"state"`
	// By is the user or the schedule that asked for it.
	By    string    `json:"by"`
	Begun time.Time `json:"begun"`
	Ended time.Time `json:"ended,omitzero"`
	// Files is the number of files, directories and links, and Bytes the size of the files. While it runs
	// or is restored, they are what is done so far.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Size is the size of the archive in bytes.
	Size int64 `json:"size,omitempty"`
	// Changed is the number of files that changed while they were read.
	Changed int `json:"changed,omitempty"`
	// Path is the archive on the node: a tar file, compressed with zstd.
	Path string `json:"path,omitempty"`
	// Message says why it failed, or why the last attempt to restore it failed.
	Message string `json:"message,omitempty"`
	// Restored is when it was restored last.
	Restored time.Time `json:"restored,omitzero"`
}

// Ends reports whether the backup has an end: nothing works on it now.
func (b Backup) Ends() bool { return b.State == BackupComplete || b.State == BackupFailed }

// NewBackup asks for a backup.
type NewBackup struct {
	By string `json:"by"`
	// Keep is how many complete backups by the same By remain, with the new one; 0 keeps all.
	Keep int `json:"keep,omitempty"`
	// Before are console lines that make a running server write its data and stop to change it. Until is a
	// text that its output then contains. After are the lines that end this state.
	Before []string `json:"before,omitempty"`
	Until  string   `json:"until,omitempty"`
	After  []string `json:"after,omitempty"`
	DryRun bool     `json:"dryRun,omitempty"`
}

// Backups are the backups of an instance, the newest first.
type Backups struct {
	Backups []Backup `json:"backups"`
}

// CreateBackup begins a backup of a static instance. A dry run only checks it. Conflict for a dynamic
// instance, while another backup or a restore of the instance runs, and while it moves. Exhausted if the
// disk is nearly full, or the instance has the most backups. Other errors as of Files.
func (c *Client) CreateBackup(ctx context.Context, id fleet.InstanceID, n NewBackup) (b Backup, err error) {
	err = c.call(ctx, http.MethodPost, id, "/backups", n, &b)
	return b, errs.Wrap("nodeagent.CreateBackup", err)
}

// Backups lists the backups of an instance.
func (c *Client) Backups(ctx context.Context, id fleet.InstanceID) (b Backups, err error) {
	err = c.call(ctx, http.MethodGet, id, "/backups", nil, &b)
	return b, errs.Wrap("nodeagent.Backups", err)
}

// Backup returns a backup. It waits at most for within until the backup ends. NotFound with the field backup
// if it does not exist.
func (c *Client) Backup(ctx context.Context, id fleet.InstanceID, backup string, within time.Duration) (b Backup, err error) {
	err = c.call(ctx, http.MethodGet, id, "/backups/"+url.PathEscape(backup)+"?within="+strconv.FormatInt(within.Milliseconds(), 10), nil, &b)
	return b, errs.Wrap("nodeagent.Backup", err)
}

// RestoreBackup begins to replace the directory of an instance by a backup. The agent keeps the replaced directory for a day.
// Conflict while the instance runs, and as of CreateBackup. NotFound as of Backup.
func (c *Client) RestoreBackup(ctx context.Context, id fleet.InstanceID, backup string, dryRun bool) (b Backup, err error) {
	err = c.call(ctx, http.MethodPost, id, "/backups/"+url.PathEscape(backup)+"/restore?dryRun="+strconv.FormatBool(dryRun), nil, &b)
	return b, errs.Wrap("nodeagent.RestoreBackup", err)
}

// DeleteBackup removes a backup, or cancels one that runs. Conflict while it is restored. NotFound as of Backup.
func (c *Client) DeleteBackup(ctx context.Context, id fleet.InstanceID, backup string, dryRun bool) (b Backup, err error) {
	err = c.call(ctx, http.MethodDelete, id, "/backups/"+url.PathEscape(backup)+"?dryRun="+strconv.FormatBool(dryRun), nil, &b)
	return b, errs.Wrap("nodeagent.DeleteBackup", err)
}
