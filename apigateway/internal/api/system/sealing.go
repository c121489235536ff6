package system

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
)

// sealingView says which keys seal secrets. It has no key.
type sealingView struct {
	// Current is the version that seals; nil while the cluster secret does.
	Current *string `json:"current"`
	// Rotating is true if a rotation has not ended: it runs, or was cut off.
	Rotating bool          `json:"rotating"`
	Versions []sealVersion `json:"versions"`
	// WrappingKeys are the IDs of this gateway's key-encryption keys, the wrapping one first.
	WrappingKeys []string `json:"wrappingKeys"`
}

// sealVersion is a version of the sealing key.
type sealVersion struct {
	ID        string `json:"id"`
	WrappedBy string `json:"wrappedBy"`
	// Retired is true once no record is sealed with it.
	Retired   bool      `json:"retired"`
	CreatedAt time.Time `json:"createdAt"`
}

// rotationView is the outcome of a rotation.
type rotationView struct {
	sealingView
	// Resealed is how many records were sealed again.
	Resealed int `json:"resealed"`
	// Unreadable are the records that no known key opens. They stay as they are.
	Unreadable []string `json:"unreadable"`
}

// sealingRoutes serve the versions of the sealing key.
func (a *API) sealingRoutes() []server.Route {
	return server.Under("/api/v1/system/sealing-key",
		server.Get("", server.Needs(auth.SystemSettings), a.sealing),
		server.Post("/rotate", server.Needs(auth.SystemSettings), a.rotateSealing),
	)
}

func sealingViewOf(s clusterops.Sealing) sealingView {
	out := sealingView{Rotating: s.Keyring.Resealing, Versions: []sealVersion{}, WrappingKeys: *resource.List(s.WrappedBy)}
	if s.Keyring.Current != "" {
		out.Current = &s.Keyring.Current
	}
	for _, v := range s.Keyring.Versions {
		out.Versions = append(out.Versions, sealVersion{ID: v.ID, WrappedBy: v.WrappedBy, Retired: v.Retired(), CreatedAt: v.CreatedAt})
	}
	return out
}

func (a *API) sealing(c *gin.Context) {
	s, err := a.cfg.Operations.Sealing(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, s.Keyring.ModRev)
	c.JSON(http.StatusOK, sealingViewOf(s))
}

// rotateSealing seals all records with a new version of the key.
func (a *API) rotateSealing(c *gin.Context) {
	s, err := a.cfg.Operations.RotateSealing(c.Request.Context(), server.Actor(c))
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.ETag(c, s.Keyring.ModRev)
	c.JSON(http.StatusOK, rotationView{sealingViewOf(s), s.Resealed, *resource.List(s.Unreadable)})
}

// sealingProblems returns what is wrong with the key that seals secrets.
func (a *API) sealingProblems(ctx context.Context) (out []problem, err error) {
	s, err := a.cfg.Operations.Sealing(ctx)
	if err != nil {
		return nil, err
	}
	p := problem{Severity: warning, Kind: "sealing-key", Name: s.Keyring.Current}
	switch {
	case s.Keyring.Current == "":
		p.Name, p.Reason = "cluster-secret", "SealedWithClusterSecret"
		p.Message = "secrets are sealed with the cluster secret, which every service has"
		p.Fix = "give gateways and template services a key file (seal.key), then run orrery secret rotate-key"
	case s.Keyring.Resealing:
		p.Reason, p.Message = "RotationUnfinished", "a rotation of the key that seals secrets runs or was cut off, so the previous key still opens some"
		p.Fix = "if none runs: orrery secret rotate-key"
	default:
		return nil, nil
	}
	return []problem{p}, nil
}
