// Command apigateway runs the gateway as a process of its own: the HTTP API of a
// fleet, for clients of both dialects.
package main

import (
	"context"
	"io"
	"os"

	"github.com/orreryhq/orrery/apigateway"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/telemetry"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// settings are what an operator may set.
type settings struct {
	program.Settings
	Listen string `config:"listen" default:":8080" usage:"address of the API; port 0 picks a free one"`
	API    struct {
		URL string `config:"url" usage:"URL others reach the API by; empty: derived from listen"`
	} `config:"api"`
	Admin struct {
		PasswordFile    string `config:"password-file" default:"./admin-password" usage:"file the generated password of the first user is written to at the first start"`
		InitialPassword string `config:"initial-password" secret:"true" usage:"password of the first user at the first start, instead of a generated one"`
	} `config:"admin"`
	CORS struct {
		Origins []string `config:"origins" default:"*" usage:"origins browsers may call from; * allows any, empty none"`
	} `config:"cors"`
	Limits struct {
		Anonymous int `config:"anonymous" default:"100" usage:"requests without a valid token per minute and address; 0 sets no limit"`
		Logins    int `config:"logins" default:"10" usage:"attempts to log in per minute and address; 0 sets no limit"`
	} `config:"limits"`
	ClusterName string `config:"cluster.name" default:"orrery" usage:"name of the cluster, told to clients of the older API"`
}

// Validate names the settings that cannot be used.
func (s *settings) Validate() []error {
	problems := append(s.Settings.Validate(), s.RequireSecret()...)
	check := func(ok bool, field, message string) {
		if !ok {
			problems = append(problems, errs.Field(field, "%s", message))
		}
	}
	check(s.Listen != "", "listen", "must be an address, like :8080")
	check(s.Limits.Anonymous >= 0, "limits.anonymous", "must not be negative")
	check(s.Limits.Logins >= 0, "limits.logins", "must not be negative")
	check(s.Admin.PasswordFile != "" || s.Admin.InitialPassword != "", "admin.password-file", "must be given when there is no admin.initial-password")
	return problems
}

func run(args, env []string, stdout, stderr io.Writer) int {
	var s settings
	return program.Main(program.Spec{
		Name: "apigateway", About: "Serves the HTTP API of an Orrery fleet.",
		Into: &s, Common: &s.Settings,
		Build: func(e program.Env) ([]lifecycle.Component, error) { return build(&s, e) },
	}, args, env, stdout, stderr)
}

// build listens first, so that a taken address is told before anything else.
func build(s *settings, e program.Env) ([]lifecycle.Component, error) {
	listener, err := apigateway.Listen(context.Background(), s.Listen)
	if err != nil {
		return nil, err
	}
	origins := s.CORS.Origins
	if origins == nil {
		origins = []string{}
	}
	service, err := apigateway.New(apigateway.Config{
		Store: e.Client, View: e.View, Log: e.Log, Metrics: e.Registry, Listener: listener, APIURL: s.API.URL,
		ClusterSecret: s.Cluster.Secret, AdminPassword: s.Admin.InitialPassword, AdminPasswordFile: s.Admin.PasswordFile,
		Origins: origins, Limits: limits(s), Replica: e.Replica, ClusterName: s.ClusterName,
		Version: telemetry.Version(), SessionTTL: s.Session.TTL,
	})
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return []lifecycle.Component{
		{Name: "apigateway", Run: service.Run},
		{Name: "serving", Start: func(ctx context.Context) error {
			select {
			case <-service.Ready():
				return nil
			case <-ctx.Done():
				return errs.Wrap("apigateway.serving", ctx.Err())
			}
		}},
	}, nil
}

// limits are as set, where 0 sets none.
func limits(s *settings) apigateway.Limits {
	none := func(n int) int {
		if n == 0 {
			return -1
		}
		return n
	}
	return apigateway.Limits{Anonymous: none(s.Limits.Anonymous), Logins: none(s.Limits.Logins)}
}
