package instances

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// instanceBackup is an archive of the directory of a static instance.
type instanceBackup struct {
	ID    string             `json:"id"`
	State client.BackupState `json:"state"`
	By    string             `json:"by"`
	Begun time.Time          `json:"begunAt"`
	// Ended is null while it runs.
	Ended *time.Time `json:"endedAt"`
	// Files and SizeBytes are those of the directory. While the backup runs or is restored, they are what is
	// done so far.
	Files        int   `json:"files"`
	SizeBytes    int64 `json:"sizeBytes"`
	ArchiveBytes int64 `json:"archiveBytes"`
	Changed      int   `json:"changedFiles"`
	// Path is the archive on the node; empty until it is complete.
	Path    string `json:"path"`
	Message string `json:"message"`
	// Restored is null if it was never restored.
	Restored *time.Time `json:"restoredAt"`
}

func shownBackup(b client.Backup) instanceBackup {
	out := instanceBackup{
		ID: b.ID, State: b.State, By: b.By, Begun: b.Begun, Files: b.Files, SizeBytes: b.Bytes, ArchiveBytes: b.Size,
		Changed: b.Changed, Path: b.Path, Message: b.Message,
	}
	if !b.Ended.IsZero() {
		out.Ended = &b.Ended
	}
	if !b.Restored.IsZero() {
		out.Restored = &b.Restored
	}
	return out
}

// instanceBackupRoutes serve the backups of instances.
func (a *API) instanceBackupRoutes() (out []server.Route) {
	see, manage := server.Needs(auth.BackupsView), server.Needs(auth.BackupsManage)
	for _, base := range []string{"/api/v1/services/:id", "/api/v1/instances/:id"} {
		out = append(out, server.AllIn(server.InstanceInPath, server.Under(base,
			server.Get("/backups", see, a.listInstanceBackups),
			server.Post("/backups", manage, a.createInstanceBackup).Rehearses(),
			server.Get("/backups/:backup", see, a.getInstanceBackup),
			server.Post("/backups/:backup/restore", server.Needs(auth.BackupsRestore), a.restoreInstanceBackup).Rehearses(),
			server.Delete("/backups/:backup", manage, a.deleteInstanceBackup).Rehearses().Unconditional(),
		)...)...)
	}
	return out
}

func (a *API) listInstanceBackups(c *gin.Context) {
	all, err := a.cfg.Operations.Backups(c.Request.Context(), c.Param("id"))
	if err != nil {
		failBackup(c, err)
		return
	}
	out := make([]instanceBackup, 0, len(all.Backups))
	for _, b := range all.Backups {
		out = append(out, shownBackup(b))
	}
	c.JSON(http.StatusOK, gin.H{"backups": out})
}

// createInstanceBackup begins a backup. The body is optional.
func (a *API) createInstanceBackup(c *gin.Context) {
	var b struct {
		Keep   int      `json:"keep"`
		Before []string `json:"before"`
		Until  string   `json:"until"`
		After  []string `json:"after"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	want := schedule.BackupSettings{Keep: b.Keep, Before: b.Before, Until: b.Until, After: b.After}
	var p validate.Problems
	if want.Check(&p, ""); len(p.List) > 0 {
		server.Fail(c, p.List[0])
		return
	}
	if who, ok := server.Identity(c); ok && len(b.Before)+len(b.After) > 0 && !who.Can(auth.InstancesCommand) {
		server.Fail(c, errs.New(errs.Denied, "%s", who.Lacks(auth.InstancesCommand)))
		return
	}
	done, err := a.cfg.Operations.CreateBackup(c.Request.Context(), server.Actor(c), c.Param("id"), want, server.DryRun(c))
	a.sendBackup(c, http.StatusAccepted, done, err)
}

// getInstanceBackup answers with a backup, after at most ?waitSeconds when it has ended.
func (a *API) getInstanceBackup(c *gin.Context) {
	within, ok := server.Number(c, "waitSeconds", 0)
	if !ok {
		return
	}
	within = min(max(within, 0), int(upstream.MaxBackupWait/time.Second))
	b, err := a.cfg.Operations.Backup(c.Request.Context(), c.Param("id"), c.Param("backup"), time.Duration(within)*time.Second)
	a.sendBackup(c, http.StatusOK, b, err)
}

func (a *API) restoreInstanceBackup(c *gin.Context) {
	b, err := a.cfg.Operations.RestoreBackup(c.Request.Context(), server.Actor(c), c.Param("id"), c.Param("backup"), server.DryRun(c))
	a.sendBackup(c, http.StatusAccepted, b, err)
}

func (a *API) deleteInstanceBackup(c *gin.Context) {
	b, err := a.cfg.Operations.DeleteBackup(c.Request.Context(), server.Actor(c), c.Param("id"), c.Param("backup"), server.DryRun(c))
	a.sendBackup(c, http.StatusOK, b, err)
}

func (a *API) sendBackup(c *gin.Context, status int, b client.Backup, err error) {
	if err != nil {
		failBackup(c, err)
		return
	}
	if server.DryRun(c) {
		status = http.StatusOK
	}
	c.JSON(status, shownBackup(b))
}

// failBackup answers with an error. An error about a path concerns the instance's directory.
func failBackup(c *gin.Context, err error) {
	if errs.FieldOf(err) == "path" {
		server.Fail(c, errs.New(errs.Conflict, "the instance has no directory yet: start it first"))
		return
	}
	server.Fail(c, err)
}
