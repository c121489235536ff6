package trust

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
)

// Credentials are a bundle in a file. They follow the file: a connection that begins after the file
// changed uses its new content. A new content that is not usable is logged, and the previous one stays
// in use. Credentials are safe for concurrent use.
type Credentials struct {
	path string
	now  func() time.Time
	log  *slog.Logger

	mu     sync.Mutex
	bundle *pki.Bundle
	// read is the state of the file that bundle, or the last refused content, was read from.
	read fs.FileInfo
}

// Open reads a bundle. Invalid for the field trust.file if the file is not usable now.
func Open(path string, now func() time.Time, log *slog.Logger) (*Credentials, error) {
	c := &Credentials{path: path, now: now, log: log}
	info, err := os.Stat(path)
	if err == nil {
		c.bundle, err = c.load()
	}
	if err != nil {
		return nil, errs.Field("trust.file", "trust.file %s cannot be used: %s", path, reason(err))
	}
	c.read = info
	return c, nil
}

// reason is the message of an error of ours, else the text of the error.
func reason(err error) string {
	var ours *errs.Error
	if errors.As(err, &ours) && ours.Message != "" {
		return ours.Message
	}
	return err.Error()
}

func (c *Credentials) load() (*pki.Bundle, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return nil, err
	}
	b, err := pki.ParseBundle(text)
	if err != nil {
		return nil, err
	}
	return b, b.VerifyOwn(c.now())
}

// Bundle returns the current bundle. A stat of the file costs less than a handshake, so no watch of the
// file is needed.
func (c *Credentials) Bundle() *pki.Bundle {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.path)
	if err != nil || sameState(info, c.read) {
		return c.bundle // a file that is being replaced may be absent for a moment
	}
	c.read = info
	fresh, err := c.load()
	if own := c.bundle.Identity(); err == nil && fresh.Identity() != own {
		err = errs.New(errs.Invalid, "it has the certificate of %s, not of %s", fresh.Identity().Path(), own.Path())
	}
	if err != nil {
		c.log.Error("the changed bundle is not usable, the previous one stays in use: correct the file", "file", c.path, "error", err)
		return c.bundle
	}
	c.log.Info("the bundle has changed", "file", c.path, "identity", fresh.Identity().String(), "notAfter", fresh.NotAfter())
	c.bundle = fresh
	return fresh
}

func sameState(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
