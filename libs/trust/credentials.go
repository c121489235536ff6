package trust

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/atomicfile"
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
	// renewed permits an expired certificate.
	renewed bool

	mu     sync.Mutex
	bundle *pki.Bundle
	// read is the state of the file that bundle, or the last refused content, was read from.
	read fs.FileInfo
	// unsaved is the text of bundle if it could not be written to the file.
	unsaved []byte
}

// Open reads a bundle. Invalid for the field trust.file if the file is not usable now.
func Open(path string, now func() time.Time, log *slog.Logger) (*Credentials, error) {
	return open(&Credentials{path: path, now: now, log: log})
}

// OpenRenewed is Open for a bundle that this process renews: its certificate may have expired, or not be valid yet.
func OpenRenewed(path string, now func() time.Time, log *slog.Logger) (*Credentials, error) {
	return open(&Credentials{path: path, now: now, log: log, renewed: true})
}

func open(c *Credentials) (*Credentials, error) {
	path := c.path
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
	return c.parse(text)
}

// parse reads a bundle that is usable now. It has the identity of the current one, if there is one.
func (c *Credentials) parse(text []byte) (*pki.Bundle, error) {
	b, err := pki.ParseBundle(text)
	if err != nil {
		return nil, err
	}
	now := c.now()
	if c.renewed { // a process that renews its certificate must be able to do so, also with a wrong clock
		now = clamp(now, b.NotBefore(), b.NotAfter())
	}
	if c.bundle != nil && b.Identity() != c.bundle.Identity() {
		return nil, errs.New(errs.Invalid, "it has the certificate of %s, not of %s", b.Identity().Path(), c.bundle.Identity().Path())
	}
	return b, b.VerifyOwn(now)
}

// Path returns the file of the bundle.
func (c *Credentials) Path() string { return c.path }

// Bundle returns the current bundle. A stat of the file costs less than a handshake, so no watch of the
// file is needed.
func (c *Credentials) Bundle() *pki.Bundle {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current()
}

// current is Bundle. It requires mu.
func (c *Credentials) current() *pki.Bundle {
	info, err := os.Stat(c.path)
	if err != nil || sameState(info, c.read) {
		return c.bundle // a file that is being replaced may be absent for a moment
	}
	c.read = info
	fresh, err := c.load()
	if err != nil {
		c.log.Error("the changed bundle is not usable, the previous one stays in use: correct the file", "file", c.path, "error", err)
		return c.bundle
	}
	c.log.Info("the bundle has changed", "file", c.path, "identity", fresh.Identity().String(), "notAfter", fresh.NotAfter())
	c.bundle, c.unsaved = fresh, nil
	return fresh
}

// Replace replaces a bundle that Bundle has returned, in one step. It does nothing if the file has changed since: an
// operator or another replica was faster. If the file cannot be written, the new bundle is used from memory until the
// file changes, and the log says what to do. Invalid if the new bundle is not usable.
func (c *Credentials) Replace(old *pki.Bundle, text []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh, err := c.parse(text)
	if err != nil || c.current() != old {
		return err
	}
	if err := atomicfile.Write(c.path, text); err != nil {
		c.bundle, c.unsaved = fresh, text
		c.log.Warn("the renewed certificate is in use but not stored, so a restart uses the one in the file: let the service write the directory of the file",
			"file", c.path, "identity", fresh.Identity().String(), "notAfter", fresh.NotAfter(), "previous", old.NotAfter(), "error", err)
	}
	return nil
}

// Save tries again to write a bundle that Replace could not write, unless the file has changed.
func (c *Credentials) Save() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current(); c.unsaved == nil || atomicfile.Write(c.path, c.unsaved) != nil {
		return
	}
	c.log.Info("the renewed certificate is stored", "file", c.path)
}

func clamp(t, first, last time.Time) time.Time {
	switch {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t
}

func sameState(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
