package accounts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime/multipart"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/accountops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// maxAvatarForm is the size of the largest form with a picture.
const maxAvatarForm = account.MaxAvatar + 64<<10

// avatarRoutes serve pictures of users. Reading them needs no token.
func (a *API) avatarRoutes() []server.Route {
	return server.Under("/api/v1/users/:name",
		server.Get("/avatar", server.Public, a.getAvatar),
		server.Post("/avatar", server.Anyone, a.postAvatar).Conditional().Reads(server.Body{Limit: maxAvatarForm, Raw: true}),
		server.Delete("/avatar", server.Anyone, a.deleteAvatar),
	)
}

// avatarURL returns the URL of a user's picture. It changes with the picture.
func avatarURL(u *account.User) *string {
	if u.Avatar.SHA256 == "" {
		return nil
	}
	return new("/api/v1/users/" + u.Username + "/avatar?v=" + u.Avatar.SHA256[:12])
}

// getAvatar sends a picture with headers that keep browsers from running it as a page.
func (a *API) getAvatar(c *gin.Context) {
	s, none := a.cfg.Operations.Snapshot(), errs.New(errs.NotFound, "there is no user with that name and a picture")
	u, ok := s.Users.Get(userName(c))
	if !ok || u.Avatar.SHA256 == "" {
		server.Fail(c, none)
		return
	}
	for name, value := range map[string]string{
		"Cache-Control": "public, max-age=3600", "Content-Security-Policy": "default-src 'none'; sandbox",
		"Cross-Origin-Resource-Policy": "cross-origin",
	} {
		c.Header(name, value)
	}
	if server.Same(c, u.Avatar.SHA256) {
		return
	}
	f, err := a.avatarFile(c.Request.Context(), u)
	if err != nil {
		for _, name := range []string{"ETag", "Cache-Control"} {
			c.Writer.Header().Del(name)
		}
		if errs.Is(err, errs.NotFound) {
			err = none
		}
		server.Fail(c, err)
		return
	}
	server.Send(c, server.Transfer{Type: u.Avatar.Type, Size: f.Size, Body: f.Body})
}

// avatarFile opens a user's picture. It returns NotFound if the file is gone.
func (a *API) avatarFile(ctx context.Context, u *account.User) (*client.File, error) {
	h, ok := a.cfg.Operations.Snapshot().TemplateHeads.Get(content.AvatarTemplate.String())
	if !ok {
		return nil, errs.New(errs.NotFound, "there are no pictures")
	}
	f, err := a.cfg.Templates.File(ctx, h.Digest, u.Avatar.File(u.ID()))
	if err != nil {
		return nil, err
	}
	if f.SHA256 != u.Avatar.SHA256 { // the template was edited
		_ = f.Body.Close()
		return nil, errs.New(errs.NotFound, "the picture was replaced by another file")
	}
	return f, nil
}

// postAvatar stores a picture and then records it for the user. After a failure in between, the
// user keeps the old picture.
func (a *API) postAvatar(c *gin.Context) {
	w, ok := a.avatarWrite(c)
	if !ok {
		return
	}
	picture, err := pictureOf(c.Request)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if !a.cfg.WithinPictures(c, w.UserID) {
		return
	}
	sum := sha256.Sum256(picture)
	w.Avatar = account.Avatar{SHA256: hex.EncodeToString(sum[:]), Type: http.DetectContentType(picture)}
	ctx, by, name := c.Request.Context(), server.Actor(c), userName(c)
	_, err = a.cfg.Templates.PutFile(ctx, client.Change{
		Ref: content.AvatarTemplate, Create: true, Path: w.File(w.UserID), Asked: client.Asked{Author: by.User}, Message: "a picture",
	}, false, bytes.NewReader(picture))
	if err != nil {
		server.Fail(c, err)
		return
	}
	u, before, err := a.cfg.Operations.WriteAvatar(ctx, by, name, w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if before.SHA256 != "" && before.SHA256 != w.SHA256 {
		a.dropAvatars(c, before.File(w.UserID))
	}
	server.ETag(c, u.ModRev)
	c.JSON(http.StatusOK, gin.H{"avatarUrl": avatarURL(&u)})
}

func (a *API) deleteAvatar(c *gin.Context) {
	w, ok := a.avatarWrite(c)
	if !ok {
		return
	}
	_, before, err := a.cfg.Operations.WriteAvatar(c.Request.Context(), server.Actor(c), userName(c), w)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if before.SHA256 != "" {
		a.dropAvatars(c, before.File(w.UserID))
	}
	c.Status(http.StatusNoContent)
}

// avatarWrite returns the change of a picture that the caller asks for, after checking that it is
// allowed. It returns false if it answered the request.
func (a *API) avatarWrite(c *gin.Context) (w accountops.AvatarWrite, ok bool) {
	if !own(c, auth.UsersUpdate) {
		return w, false
	}
	match, err := server.IfMatch(c)
	if err != nil {
		server.Fail(c, err)
		return w, false
	}
	who, _ := server.Identity(c)
	if u, ok := a.cfg.Operations.Snapshot().Users.Get(userName(c)); ok {
		w.UserID = u.ID()
	}
	w.IfMatch, w.May, w.DryRun = match, who.Permissions, true
	if _, _, err := a.cfg.Operations.WriteAvatar(c.Request.Context(), server.Actor(c), userName(c), w); err != nil { // check before storing the file
		server.Fail(c, err)
		return w, false
	}
	w.DryRun = false
	return w, true
}

// dropAvatars deletes unused pictures. A failure leaves files that no one sees.
func (a *API) dropAvatars(c *gin.Context, path string) {
	_, err := a.cfg.Templates.Edit(context.WithoutCancel(c.Request.Context()), client.Change{
		Ref: content.AvatarTemplate, Asked: client.Asked{Author: server.Actor(c).User}, Message: "nobody shows it",
	}, client.Op{Op: "delete", Path: path})
	if err != nil && !errs.Is(err, errs.NotFound) {
		_ = c.Error(err) // for the access log
	}
}

// pictureOf reads the picture from a form. It returns Malformed if there is none and TooLarge if it
// is too large.
func pictureOf(r *http.Request) ([]byte, error) {
	bad := func(text string, err error) ([]byte, error) {
		return nil, &errs.Error{Kind: errs.Malformed, Field: "avatar", Message: text, Err: err}
	}
	form, err := r.MultipartReader()
	if err != nil {
		return bad("send a form (multipart/form-data) with the picture in this field", err)
	}
	part, err := partOf(form, "avatar")
	if err != nil {
		return bad("is missing from the form, or the form is malformed", err)
	}
	picture, err := io.ReadAll(io.LimitReader(part, account.MaxAvatar+1))
	var over *http.MaxBytesError
	switch {
	case len(picture) > account.MaxAvatar, errors.As(err, &over):
		return nil, errs.New(errs.TooLarge, "the picture is larger than %d MiB: send a smaller one", account.MaxAvatar>>20)
	case err != nil:
		return bad("ended too early: send the form again", err)
	}
	switch http.DetectContentType(picture) {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return picture, nil
	}
	return bad("must be a PNG, JPEG, GIF or WebP file", nil)
}

// partOf returns the part of a form with a name.
func partOf(form *multipart.Reader, name string) (*multipart.Part, error) {
	for {
		part, err := form.NextPart()
		if err != nil || part.FormName() == name {
			return part, err
		}
	}
}
