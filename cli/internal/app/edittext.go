package app

import (
	"context"
	"path"
)

// EditText lets the user change the content of a file in an editor. It returns nil, and says so, if the
// text stayed the same.
func (a *App) EditText(ctx context.Context, file, content string) ([]byte, error) {
	edited, err := a.Edit(ctx, path.Base(file), []byte(content))
	if err == nil && string(edited) == content {
		a.Notef("%s was not changed", file)
		return nil, nil
	}
	return edited, err
}
