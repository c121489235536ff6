// Command dex serves a real OpenID Connect provider for the scenarios of e2e/oidc: Dex with its
// storage in memory and users from a file.
//
//	DEX_CLIENT_SECRET=s dex -listener 3 -issuer http://127.0.0.1:1/dex -client orrery -redirect http://127.0.0.1:2/… -users users.json
//
// It serves on a listener that it inherits. It reads the users at each login, so a scenario can
// change their groups.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dexidp/dex/connector"
	"github.com/dexidp/dex/pkg/log"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dex:", err)
		os.Exit(1)
	}
}

func run() error {
	descriptor := flag.Int("listener", 3, "file `descriptor` of the listener")
	issuer := flag.String("issuer", "", "`URL` of the provider at that listener")
	client := flag.String("client", "orrery", "`id` of the client, whose secret is in DEX_CLIENT_SECRET")
	redirects := flag.String("redirect", "", "`URLs` that the client may be sent back to, with commas between")
	users := flag.String("users", "", "`file` with the users: {\"name\":{\"password\":\"…\",\"groups\":[\"…\"]}}")
	flag.Parse()
	listener, err := net.FileListener(os.NewFile(uintptr(*descriptor), "listener"))
	if err != nil {
		return err
	}
	logger := logrus.New()
	logger.SetLevel(logrus.WarnLevel)
	store := memory.New(logger)
	if err := store.CreateClient(storage.Client{ID: *client, Secret: os.Getenv("DEX_CLIENT_SECRET"), RedirectURIs: strings.Split(*redirects, ","), Name: "Orrery"}); err != nil {
		return err
	}
	if err := store.CreateConnector(storage.Connector{ID: "file", Type: "file", Name: "Users of a file"}); err != nil {
		return err
	}
	server.ConnectorsConfig = map[string]func() server.ConnectorConfig{
		"file": func() server.ConnectorConfig { return &userFile{path: *users} },
	}
	handler, err := server.NewServer(context.Background(), server.Config{
		Issuer: *issuer, Storage: store, SkipApprovalScreen: true, Web: server.WebConfig{WebFS: web.FS()},
		IDTokensValidFor: time.Hour, Logger: logger, PrometheusRegistry: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	return http.Serve(listener, handler)
}

// userFile checks passwords against a file.
type userFile struct{ path string }

// Open implements server.ConnectorConfig.
func (f *userFile) Open(string, log.Logger) (connector.Connector, error) { return f, nil }

// Prompt implements connector.PasswordConnector.
func (f *userFile) Prompt() string { return "Username" }

// Login implements connector.PasswordConnector.
func (f *userFile) Login(_ context.Context, _ connector.Scopes, username, password string) (connector.Identity, bool, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return connector.Identity{}, false, err
	}
	var users map[string]struct {
		Password string   `json:"password"`
		Groups   []string `json:"groups"`
	}
	if err := json.Unmarshal(content, &users); err != nil {
		return connector.Identity{}, false, err
	}
	user, ok := users[username]
	if !ok || user.Password != password {
		return connector.Identity{}, false, nil
	}
	return connector.Identity{
		UserID: "id-" + username, Username: username, PreferredUsername: username, Email: username + "@example.org", EmailVerified: true, Groups: user.Groups,
	}, true, nil
}
