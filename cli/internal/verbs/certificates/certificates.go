// Package certificates has the commands that issue the certificates of the services. They work on files
// of this machine and talk to no server.
package certificates

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/spf13/cobra"
)

const (
	// authorityFile has the authority's certificate and key, authorityCert only the certificate.
	authorityFile = "authority.pem"
	authorityCert = "authority.crt"
	// nodesFile has the authority of the nodes' certificates and its key.
	nodesFile = "nodes.pem"

	day = 24 * time.Hour
	// Validity in days, unless a flag says otherwise.
	authorityDays = 3650
	serviceDays   = 365
)

// Commands returns the commands of this package.
func Commands(a *app.App) []*cobra.Command {
	cmd := command.New(a, command.Spec{
		Use: "pki", Short: "Issue the certificates by which services know each other",
		Long: `An authority issues a certificate for each service. Services with certificates encrypt the calls between them, and
each service does only what it may. The commands work on files of this machine.`,
		Local: true, Example: `orrery pki init
orrery pki issue scheduler`,
	})
	cmd.AddCommand(initCommand(a), issueCommand(a), showCommand(a))
	return []*cobra.Command{cmd}
}

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "pki", "`directory` of the authority")
}

func initCommand(a *app.App) *cobra.Command {
	var dir, name string
	var days int
	cmd := command.New(a, command.Spec{
		Use: "init", Short: "Make an authority",
		Long: `It writes ` + authorityFile + ` with the authority's key, which can issue a certificate for any service: keep it on a machine that
runs no instances. Gateways with it (--services-authority) renew the certificates of services. ` + authorityCert + ` has the
certificate alone, for etcd.

` + nodesFile + ` is a second authority, which can issue certificates for nodes only, and which etcd does not trust. Gateways need it to
let nodes join (--nodes-authority). If the directory has an authority already, only ` + nodesFile + ` is added.`,
		Local: true, Example: "orrery pki init --dir ./pki-of-eu",
		Run: func(context.Context, []string) error { return makeAuthority(a, dir, name, days) },
	})
	dirFlag(cmd, &dir)
	cmd.Flags().StringVar(&name, "name", "orrery", "`name` of the authority, which errors show")
	days = authorityDays
	command.Number(cmd.Flags(), &days, "days", 1, "`days` until the authority expires")
	return cmd
}

func makeAuthority(a *app.App, dir, name string, days int) error {
	now := time.Now()
	until := now.Add(time.Duration(days) * day)
	nodes, err := pki.NewNodeAuthority(name+" nodes", now, until)
	if err != nil {
		return plain(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	forNodes := filepath.Join(dir, nodesFile)
	switch own, err := readAuthority(dir, authorityFile); {
	case err == nil && !exists(forNodes): // made before there were authorities for nodes
		if err := writeAuthority(forNodes, nodes); err != nil {
			return err
		}
		a.Notef("wrote the authority of nodes to %s; the authority in %s, which expires on %s, stays", forNodes, authorityFile, own.Until().UTC().Format(time.DateOnly))
		a.Notef("next: issue the certificates of all services again, so that they trust it: orrery pki issue SERVICE --dir %s --force", dir)
		return nil
	case err != nil && exit.CodeOf(err) != exit.NotFound:
		return err
	}
	authority, err := pki.NewAuthority(name, now, until)
	if err != nil {
		return plain(err)
	}
	path := filepath.Join(dir, authorityFile)
	if err := writeAuthority(path, authority); err != nil {
		if exit.CodeOf(err) == exit.Conflict {
			return exit.With(exit.Conflict, err, "it may have issued certificates that are in use; choose another --dir for a new authority")
		}
		return err
	}
	if err := app.WriteFile(filepath.Join(dir, authorityCert), authority.Pair().Cert, true); err != nil {
		return err
	}
	if err := writeAuthority(forNodes, nodes); err != nil {
		return err
	}
	a.Notef("wrote the authority %q to %s; it expires on %s", name, path, authority.Until().UTC().Format(time.DateOnly))
	a.Notef("wrote the authority of nodes to %s", forNodes)
	a.Notef("next: orrery pki issue SERVICE --dir %s", dir)
	return nil
}

func writeAuthority(path string, authority *pki.Authority) error {
	pair := authority.Pair()
	return app.WriteFile(path, slices.Concat(pair.Cert, pair.Key), false)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// issueOptions are the flags of issue.
type issueOptions struct {
	dir, out      string
	hosts, trusts []string
	days          int
	force         bool
	// throughGateways lets the authority of nodes issue the certificate.
	throughGateways bool
}

func issueCommand(a *app.App) *cobra.Command {
	o := issueOptions{days: serviceDays}
	cmd := command.New(a, command.Spec{
		Use: "issue SERVICE[/NAME]", Short: "Issue a certificate for a service",
		Long: `SERVICE is ` + strings.Join(pki.Services(), ", ") + `. The NAME of a nodeagent is the id of its node. Others
need a name only to tell them apart.

It writes one file with the certificate, its key and the authority, which the service reads with --trust-file. For etcd it writes
a certificate and a key, for etcd's --cert-file and --key-file; ` + authorityCert + ` is for --trusted-ca-file.`,
		Local: true, Example: `orrery pki issue scheduler
orrery pki issue nodeagent/node-1 --out node-1.pem
orrery pki issue etcd --host etcd-1.internal --host 10.0.0.5`,
		Args: command.Between(1, 1, "SERVICE[/NAME]"), Complete: completeServices,
		Run: func(_ context.Context, args []string) error { return issue(a, args[0], o) },
	})
	flags := cmd.Flags()
	dirFlag(cmd, &o.dir)
	flags.StringVar(&o.out, "out", "", "write to this `file`; for etcd, without its extension (default: SERVICE-NAME in the directory of the authority)")
	flags.StringArrayVar(&o.hosts, "host", nil, "host `name` or address at which others reach the service, may be repeated; only etcd needs it")
	flags.StringArrayVar(&o.trusts, "trust", nil, "`file` with the certificate of a further authority that the service trusts, may be repeated; to replace an authority")
	command.Number(flags, &o.days, "days", 1, "`days` until the certificate expires")
	flags.BoolVar(&o.throughGateways, "through-gateways", false, "for a nodeagent that uses etcd through gateways: the certificate is one of the nodes' authority, so etcd does not accept it")
	flags.BoolVar(&o.force, "force", false, "replace files that exist")
	return cmd
}

func completeServices(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return pki.Services(), cobra.ShellCompDirectiveNoFileComp
}

func issue(a *app.App, path string, o issueOptions) error {
	service, name, _ := strings.Cut(path, "/")
	who := pki.Identity{Service: service, Name: name}
	if err := who.Validate(); err != nil {
		return exit.With(exit.Usage, plain(err), "an example: orrery pki issue nodeagent/node-1")
	}
	if who.Service == pki.Etcd && len(o.hosts) == 0 {
		return command.UsageError("pass --host for each name and address by which services reach etcd", "a certificate of etcd needs hosts")
	}
	if who.Service == pki.Etcd && len(o.trusts) > 0 {
		return command.UsageError("put the certificates of both authorities into the file of etcd's --trusted-ca-file instead", "--trust is for services, not for etcd")
	}
	if o.throughGateways && who.Service != pki.Agent {
		return command.UsageError("", "--through-gateways is for a nodeagent")
	}
	authority, err := readAuthority(o.dir, authorityFile)
	if err != nil {
		return err
	}
	trusted := [][]byte{authority.Pair().Cert}
	if o.throughGateways || exists(filepath.Join(o.dir, nodesFile)) {
		nodes, err := readAuthority(o.dir, nodesFile)
		if err != nil {
			return err
		}
		trusted = append(trusted, nodes.Pair().Cert)
		if o.throughGateways {
			authority = nodes
		}
	}
	for _, file := range o.trusts {
		cert, err := readCertificate(file)
		if err != nil {
			return err
		}
		trusted = append(trusted, cert)
	}
	now := time.Now()
	pair, err := authority.Issue(pki.Request{
		Name: who.Path(), Identity: who, Hosts: o.hosts, Server: true, Client: true, Now: now, Until: now.Add(time.Duration(o.days) * day),
	})
	if err != nil {
		return plain(err)
	}
	base := o.out
	if base == "" {
		base = filepath.Join(o.dir, strings.ReplaceAll(who.Path(), "/", "-"))
	}
	if who.Service == pki.Etcd {
		return writeForEtcd(a, base, filepath.Join(o.dir, authorityCert), pair, o.force)
	}
	if o.out == "" {
		base += ".pem"
	}
	if err := app.WriteFile(base, pki.NewBundle(pair, trusted...), o.force); err != nil {
		return err
	}
	a.Notef("wrote the certificate of %s to %s; copy the file to its host, and start the service with --trust-file", who.Path(), base)
	return nil
}

// writeForEtcd writes a pair as etcd reads it.
func writeForEtcd(a *app.App, base, trusted string, pair pki.Pair, force bool) error {
	cert, key := base+".crt", base+".key"
	if err := app.WriteFile(cert, pair.Cert, force); err != nil {
		return err
	}
	if err := app.WriteFile(key, pair.Key, force); err != nil {
		return err
	}
	a.Notef("wrote %s and %s; copy both and %s to the host of etcd, and start etcd with", cert, key, trusted)
	a.Notef("  --cert-file %s --key-file %s --client-cert-auth --trusted-ca-file %s", filepath.Base(cert), filepath.Base(key), filepath.Base(trusted))
	return nil
}

func readAuthority(dir, name string) (*pki.Authority, error) {
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, exit.With(exit.NotFound, fmt.Errorf("there is no %s in %s", name, dir), "make it: orrery pki init --dir "+dir)
	}
	if err != nil {
		return nil, err
	}
	pair, err := pki.ParsePair(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	}
	authority, err := pki.LoadAuthority(pair)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	}
	return authority, nil
}

// readCertificate returns the certificate of an authority from a file, which may also have its key.
func readCertificate(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cert, err := pki.AuthorityCert(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	}
	return cert, nil
}

// bundleView is what show prints.
type bundleView struct {
	Identity    string    `json:"identity"`
	Authorities []string  `json:"authorities"`
	Hosts       []string  `json:"hosts"`
	NotBefore   time.Time `json:"notBefore"`
	NotAfter    time.Time `json:"notAfter"`
	// Problem says why the service would refuse the file now; empty if it would not.
	Problem string `json:"problem,omitempty"`
}

func showCommand(a *app.App) *cobra.Command {
	return command.New(a, command.Spec{
		Use: "show FILE", Short: "Show whose certificate a file has, and until when it is valid",
		Long:  "It exits with 1 if a service would refuse the file now.",
		Local: true, Example: "orrery pki show pki/scheduler.pem",
		Args: command.Between(1, 1, "FILE"), Complete: command.LocalFiles,
		Run: func(_ context.Context, args []string) error { return show(a, args[0]) },
	})
}

func show(a *app.App, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b, err := pki.ParseBundle(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, plain(err))
	}
	view := bundleView{
		Identity: b.Identity().String(), Authorities: b.Names(), Hosts: b.Hosts(), NotBefore: b.NotBefore(), NotAfter: b.NotAfter(),
	}
	invalid := b.VerifyOwn(time.Now())
	if invalid != nil {
		view.Problem = errs.MessageOf(invalid)
	}
	err = a.Show(view, b.Identity().Path(), func(p output.Printer) error {
		lines := [][]string{
			{"Identity", view.Identity},
			{"Authorities", strings.Join(view.Authorities, ", ")},
			{"Valid from", view.NotBefore.Local().Format(time.DateTime)},
			{"Valid until", view.NotAfter.Local().Format(time.DateTime)},
		}
		if len(view.Hosts) > 0 {
			lines = append(lines, []string{"Hosts", strings.Join(view.Hosts, ", ")})
		}
		return p.Lines(lines)
	})
	if err == nil && invalid != nil {
		err = exit.Hint(fmt.Errorf("%s is not usable: %s", path, view.Problem), "issue a new one: orrery pki issue "+b.Identity().Path()+" --force")
	}
	return err
}

// plain is the message of an error of package pki, without the names of functions.
func plain(err error) error { return errors.New(errs.MessageOf(err)) }
