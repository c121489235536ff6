package settings_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/cli/internal/settings"
	orrery "github.com/orreryhq/orrery/sdk"
)

func path(t *testing.T) string { return filepath.Join(t.TempDir(), "orrery", "config.yaml") }

// with writes a context that is logged in.
func with(t *testing.T, store *settings.Store, login settings.Login) {
	t.Helper()
	err := store.Change(t.Context(), func(file *settings.File) error {
		file.Contexts = append(file.Contexts, settings.Context{Name: "local", Servers: []string{"http://a"}})
		store.SetLogin(file.Find("local"), &login)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, store *settings.Store) *settings.File {
	t.Helper()
	file, err := store.Read()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOnlyTheOwnerReadsTheFile(t *testing.T) {
	p := path(t)
	with(t, settings.New(p, nil), settings.Login{Token: "t"})
	for name, want := range map[string]os.FileMode{p: 0o600, filepath.Dir(p): 0o700} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

func TestAFailedChangeWritesNothing(t *testing.T) {
	p := path(t)
	store := settings.New(p, nil)
	with(t, store, settings.Login{Token: "t"})
	before, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no")
	if err := store.Change(t.Context(), func(file *settings.File) error { file.Contexts = nil; return failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	if after, err := os.ReadFile(p); err != nil || string(after) != string(before) {
		t.Errorf("the file is %q, %v", after, err)
	}
	left, err := os.ReadDir(filepath.Dir(p))
	if err != nil || len(left) != 2 { // the file and its lock
		t.Errorf("the directory has %v, %v", left, err)
	}
}

func TestProgramsThatChangeTheFileAtOnceLoseNothing(t *testing.T) {
	p := path(t)
	const programs, changes = 8, 5
	var wait sync.WaitGroup
	for i := range programs {
		wait.Go(func() {
			store := settings.New(p, nil)
			for j := range changes {
				err := store.Change(t.Context(), func(file *settings.File) error {
					file.Contexts = append(file.Contexts, settings.Context{Name: fmt.Sprintf("c%d-%d", i, j)})
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if _, err := store.Read(); err != nil {
					t.Errorf("half of the file was seen: %v", err)
				}
			}
		})
	}
	wait.Wait()
	if got := len(read(t, settings.New(p, nil)).Contexts); got != programs*changes {
		t.Errorf("%d contexts, want %d", got, programs*changes)
	}
}

func TestABrokenFileIsNamedWithThePlace(t *testing.T) {
	for content, want := range map[string]string{
		"contexts: [\n":                   "line 2, column 1: ",
		"current: a\ncontexts:\n\t- x\n":  "line 3, column 1: ",
		"contexts:\n  - login: s3cret\n":  "line 2, column 12: a value has the wrong type",
		"contexts: s3cret\n":              "line 1, column 11: a value has the wrong type",
		"contexts:\n  - name: [s3cret]\n": "line 2, column 11: a value has the wrong type",
	} {
		p := path(t)
		with(t, settings.New(p, nil), settings.Login{})
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := settings.New(p, nil).Read()
		if err == nil || !strings.Contains(err.Error(), p+": "+want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %v, want %q", content, err, want)
		}
	}
}

func TestAnEmptyFileHasNoContexts(t *testing.T) {
	for _, content := range []string{"", "# nothing\n", "---\n", "null\n"} {
		p := path(t)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		if file := read(t, settings.New(p, nil)); len(file.Contexts) != 0 {
			t.Errorf("%q: got %v", content, file)
		}
	}
}

func TestTokensThatOthersCanReadAreReportedOnce(t *testing.T) {
	p := path(t)
	with(t, settings.New(p, nil), settings.Login{Token: "t"})
	if err := os.Chmod(p, 0o644); err != nil {
		t.Fatal(err)
	}
	var warnings []string
	store := settings.New(p, nil)
	store.Warn = func(text string) { warnings = append(warnings, text) }
	for range 2 {
		read(t, store)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "chmod 600 "+p) {
		t.Errorf("the warnings are %q", warnings)
	}
	if err := store.Change(t.Context(), func(*settings.File) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("after a change: mode %v, %v", info.Mode(), err)
	}
}

func TestAFileWithoutTokensMayBeRead(t *testing.T) {
	p := path(t)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte("current: a\ncontexts:\n- name: a\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	store := settings.New(p, nil)
	store.Warn = func(text string) { t.Errorf("a warning: %s", text) }
	read(t, store)
}

func TestWithoutADirectoryThereAreNoSettings(t *testing.T) {
	store := settings.New("", nil)
	if file := read(t, store); len(file.Contexts) != 0 {
		t.Errorf("got %v", file)
	}
	err := store.Change(t.Context(), func(*settings.File) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "ORRERY_CONFIG") {
		t.Errorf("got %v", err)
	}
}

func TestTheContextWithAServer(t *testing.T) {
	file := &settings.File{Contexts: []settings.Context{
		{Name: "local", Servers: []string{"http://127.0.0.1:8080"}},
		{Name: "production", Servers: []string{"https://a.example", "https://b.example/"}},
		{Name: "alice", Servers: []string{"https://b.example"}},
	}}
	for _, c := range []struct{ server, preferred, want string }{
		{"http://127.0.0.1:8080/", "", "local"},
		{"HTTPS://A.example:443", "", "production"},
		{"https://b.example", "", "production"},
		{"https://b.example", "alice", "alice"},
		{"https://b.example", "local", "production"},
		{"http://b.example", "", ""},
		{"http://127.0.0.1:8081", "local", ""},
		{"https://b.example.evil", "", ""},
	} {
		got := ""
		if found := file.With(c.server, c.preferred); found != nil {
			got = found.Name
		}
		if got != c.want {
			t.Errorf("%s, preferred %q: got %q, want %q", c.server, c.preferred, got, c.want)
		}
	}
}

// refresher counts the logins that it exchanges. A refresh token works once.
type refresher struct {
	mu    sync.Mutex
	valid string
	calls int
}

func (r *refresher) refresh(_ context.Context, token string) (*settings.Login, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if token != r.valid {
		return nil, &orrery.Error{Status: 401, Message: "the refresh token was used"}
	}
	r.valid = fmt.Sprintf("refresh-%d", r.calls)
	return &settings.Login{Token: fmt.Sprintf("token-%d", r.calls), RefreshToken: r.valid, ExpiresAt: time.Now().Add(time.Hour)}, nil
}

func TestTenProgramsRefreshAnExpiredLoginOnce(t *testing.T) {
	p := path(t)
	r := &refresher{valid: "refresh-0"}
	with(t, settings.New(p, nil), settings.Login{Token: "old", RefreshToken: r.valid, ExpiresAt: time.Now().Add(-time.Minute)})
	var wait sync.WaitGroup
	for range 10 {
		wait.Go(func() {
			token, err := settings.New(p, nil).Credentials("local", r.refresh).Token(t.Context(), "")
			if err != nil || token != "token-1" {
				t.Errorf("got %q, %v", token, err)
			}
		})
	}
	wait.Wait()
	if r.calls != 1 {
		t.Errorf("refreshed %d times", r.calls)
	}
}

func TestARejectedTokenIsRefreshedOnlyIfItIsTheCurrentOne(t *testing.T) {
	store := settings.New(path(t), nil)
	r := &refresher{valid: "refresh-0"}
	with(t, store, settings.Login{Token: "now", RefreshToken: r.valid, ExpiresAt: time.Now().Add(time.Hour)})
	credentials := store.Credentials("local", r.refresh)
	for _, c := range []struct {
		rejected, want string
		calls          int
	}{{"", "now", 0}, {"before", "now", 0}, {"now", "token-1", 1}, {"now", "token-1", 1}} {
		if token, err := credentials.Token(t.Context(), c.rejected); err != nil || token != c.want || r.calls != c.calls {
			t.Errorf("rejected %q: got %q, %v after %d calls", c.rejected, token, err, r.calls)
		}
	}
}

func TestALoginThatEndedIsSentSoThatTheServerSaysSo(t *testing.T) {
	store := settings.New(path(t), nil)
	r := &refresher{valid: "another"}
	with(t, store, settings.Login{Token: "old", RefreshToken: "used", ExpiresAt: time.Now().Add(-time.Minute)})
	if token, err := store.Credentials("local", r.refresh).Token(t.Context(), ""); err != nil || token != "old" {
		t.Errorf("got %q, %v", token, err)
	}
}

// keyring is a keyring in memory, or one that does not work.
type keyring struct {
	logins map[string]*settings.Login
	err    error
}

func (k *keyring) Set(key string, login *settings.Login) error {
	if k.err == nil {
		k.logins[key] = login
	}
	return k.err
}

func (k *keyring) Get(key string) (*settings.Login, error) {
	if login, ok := k.logins[key]; ok && k.err == nil {
		return login, nil
	}
	return nil, errors.Join(k.err, errors.New("not found"))
}

func (k *keyring) Delete(key string) error {
	delete(k.logins, key)
	return k.err
}

func TestTheKeyringHasTheTokens(t *testing.T) {
	p := path(t)
	k := &keyring{logins: map[string]*settings.Login{}}
	store := settings.New(p, k)
	with(t, store, settings.Login{Token: "s3cret"})
	content, err := os.ReadFile(p)
	if err != nil || strings.Contains(string(content), "s3cret") {
		t.Errorf("the file has %q, %v", content, err)
	}
	if login := store.LoginOf(read(t, store).Find("local")); login == nil || login.Token != "s3cret" {
		t.Errorf("got %+v", login)
	}
	err = store.Change(t.Context(), func(file *settings.File) error { store.DropLogin(file.Find("local")); return nil })
	if err != nil || len(k.logins) != 0 || store.LoginOf(read(t, store).Find("local")) != nil {
		t.Errorf("the login is still there: %v, %v", k.logins, err)
	}
}

func TestTheFileHasTheTokensIfTheKeyringFails(t *testing.T) {
	store := settings.New(path(t), &keyring{err: errors.New("no answer")})
	with(t, store, settings.Login{Token: "s3cret"})
	if login := store.LoginOf(read(t, store).Find("local")); login == nil || login.Token != "s3cret" {
		t.Errorf("got %+v", login)
	}
}
