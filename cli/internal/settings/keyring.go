package settings

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/zalando/go-keyring"
)

// Keyring stores logins outside the settings file.
type Keyring interface {
	Set(key string, login *Login) error
	Get(key string) (*Login, error)
	Delete(key string) error
}

// DesktopKeyring is the keyring of the user's desktop session.
type DesktopKeyring struct{}

const (
	keyringService = "orrery"
	// keyringTimeout bounds each call: a session bus without a keyring can hang.
	keyringTimeout = time.Second
)

var (
	errKeyringTimeout = errors.New("the keyring did not answer within a second")
	errNoKeyring      = errors.New("there is no desktop session")
)

// Set stores a login.
func (DesktopKeyring) Set(key string, login *Login) error {
	encoded, err := json.Marshal(login)
	if err != nil {
		return err
	}
	_, err = bounded(func() (string, error) { return "", keyring.Set(keyringService, key, string(encoded)) })
	return err
}

// Get returns a login.
func (DesktopKeyring) Get(key string) (*Login, error) {
	encoded, err := bounded(func() (string, error) { return keyring.Get(keyringService, key) })
	if err != nil {
		return nil, err
	}
	login := &Login{}
	return login, json.Unmarshal([]byte(encoded), login)
}

// Delete removes a login.
func (DesktopKeyring) Delete(key string) error {
	_, err := bounded(func() (string, error) { return "", keyring.Delete(keyringService, key) })
	return err
}

// bounded returns what call returns, or errKeyringTimeout. The library has no way to cancel a
// call, so one that hangs ends with the program.
func bounded(call func() (string, error)) (string, error) {
	type result struct {
		value string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	timer := time.NewTimer(keyringTimeout)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		return "", errKeyringTimeout
	}
}
