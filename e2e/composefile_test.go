package e2e_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/pki"
)

// The test needs no container engine, because etcd's own flags read the environment
// variables that the file sets.
func TestTheComposeFileBoundsEtcdsHistoryAndDatabase(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string `yaml:"environment"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	members := 0
	for name, service := range file.Services {
		if !strings.HasPrefix(name, "etcd-") {
			continue
		}
		members++
		cfg, flags := embed.NewConfig(), flag.NewFlagSet(name, flag.ContinueOnError)
		cfg.AddFlags(flags)
		flags.VisitAll(func(f *flag.Flag) {
			if value, ok := service.Environment["ETCD_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))]; ok {
				if err := f.Value.Set(value); err != nil {
					t.Errorf("%s: --%s=%s: %v", name, f.Name, value, err)
				}
			}
		})
		if cfg.AutoCompactionMode != embed.CompactorModePeriodic || cfg.AutoCompactionRetention != "10m" {
			t.Errorf("%s compacts by mode %q and keeps %q of history, want periodic and 10m", name, cfg.AutoCompactionMode, cfg.AutoCompactionRetention)
		}
		if cfg.QuotaBackendBytes != 4<<30 {
			t.Errorf("the quota of %s is %d bytes, want 4 GiB", name, cfg.QuotaBackendBytes)
		}
		if cfg.BootstrapDefragThresholdMegabytes != 256 {
			t.Errorf("%s defragments at its start to free %d MB, want 256", name, cfg.BootstrapDefragThresholdMegabytes)
		}
	}
	if members != 3 {
		t.Errorf("the file has %d members of etcd, want 3", members)
	}
}

func TestTheComposeFileNeedsNothingThatAFreshCloneLacks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	if required := regexp.MustCompile(`\$\{[A-Z0-9_]+:\?[^}]*`).FindAllString(string(text), -1); required != nil {
		t.Errorf("variables have to be set: %q", required)
	}
	dockerfile, err := os.ReadFile("../deployments/docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Build struct{ Dockerfile, Target string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for name, service := range file.Services {
		if service.Build.Dockerfile != "deployments/docker/Dockerfile" || !strings.Contains(string(dockerfile), " AS "+service.Build.Target+"\n") {
			t.Errorf("%s is built of %+v, which is not there", name, service.Build)
		}
	}
}

func TestOnlyTheGatewaysOfTheComposeFileSeeTheFirstPassword(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string
			Volumes     []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	const secret, password, key = "secrets:/run/orrery:ro", "admin:/run/orrery-admin:ro", "seal:/run/orrery-seal:ro"
	trust := func(holder string) string { return "trust-" + holder + ":/run/orrery-trust" } // all but etcd renew their certificates
	for name, service := range file.Services {
		var want []string
		switch {
		case name == "init":
			want = []string{strings.TrimSuffix(secret, ":ro"), strings.TrimSuffix(key, ":ro"), strings.TrimSuffix(password, ":ro"), "authority:/run/orrery-pki"}
			for _, holder := range certified {
				want = append(want, "trust-"+holder+":/run/orrery-trust/"+holder)
			}
		case strings.HasPrefix(name, "gateway-"):
			want = []string{secret, key, password, trust("apigateway")}
		case name == "templatesvc":
			want = []string{secret, key, trust(name)}
		case strings.HasPrefix(name, "etcd-"):
			want = []string{trust("etcd") + ":ro"}
		case strings.HasPrefix(name, "agent-"): // no cluster secret
			want = []string{trust(name)}
			if _, direct := service.Environment["ORRERY_ETCD_ENDPOINTS"]; direct || service.Environment["ORRERY_GATEWAYS"] == "" {
				t.Errorf("%s uses etcd itself", name)
			}
		default:
			want = []string{secret, trust(name)}
		}
		got := slices.DeleteFunc(slices.Clone(service.Volumes), func(v string) bool { return !strings.Contains(v, ":/run/") })
		if !slices.Equal(got, want) {
			t.Errorf("%s mounts %q, want %q", name, got, want)
		}
		for _, variable := range []string{"ORRERY_CLUSTER_SECRET_FILE", "ORRERY_SEAL_KEY_FILE", "ORRERY_ADMIN_INITIAL_PASSWORD_FILE", "ORRERY_TRUST_FILE", "ORRERY_NODES_AUTHORITY", "ORRERY_SERVICES_AUTHORITY", "ETCD_CERT_FILE", "ETCD_KEY_FILE", "ETCD_TRUSTED_CA_FILE"} {
			path, reads := service.Environment[variable]
			if reads && !slices.ContainsFunc(got, func(v string) bool { return filepath.Dir(path) == strings.Split(v, ":")[1] }) {
				t.Errorf("%s reads %s, which no volume of it has", name, path)
			}
		}
	}
}

// certified are the holders of certificates in the compose file, in the order of the volumes of init.
var certified = []string{"etcd", "apigateway", "scheduler", "enforcer", "templatesvc", "agent-1", "agent-2", "agent-3"}

// runInit runs the script of the service init, with a directory in place of each volume. The directory pki
// has those of the authority and the certificates.
func runInit(t *testing.T, secrets, admin, pki string, env ...string) (printed string, err error) {
	t.Helper()
	for _, holder := range certified {
		if err := os.MkdirAll(filepath.Join(pki, "trust", holder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(pki, "seal"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("bash", "../deployments/docker/init.sh")
	c.Env = append([]string{
		"PATH=" + filepath.Dir(cluster.Program(t, "./cli/cmd/orrery")) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"ORRERY_SECRETS_DIR=" + secrets, "ORRERY_ADMIN_DIR=" + admin, "ORRERY_SEAL_DIR=" + filepath.Join(pki, "seal"), "ORRERY_PKI_DIR=" + filepath.Join(pki, "authority"), "ORRERY_TRUST_DIR=" + filepath.Join(pki, "trust"),
	}, env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestTheSecretsOfComposeAreMadeOnceOrTakenFromTheEnvironment(t *testing.T) {
	t.Parallel()
	secrets, admin, certificates := t.TempDir(), t.TempDir(), t.TempDir()
	run := func(env ...string) (printed, secret, password string) {
		t.Helper()
		printed, err := runInit(t, secrets, admin, certificates, env...)
		if err != nil {
			t.Fatalf("%v: %s", err, printed)
		}
		read := func(dir, name string) string {
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 {
				t.Fatalf("%v, %v, want %s alone", entries, err, name)
			}
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		return printed, read(secrets, "cluster-secret"), read(admin, "admin-password")
	}
	printed, secret, password := run()
	sealKey := func() string {
		b, err := os.ReadFile(filepath.Join(certificates, "seal", "seal-key"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := sealKey()
	if len(first) != 64 || first == secret || strings.Contains(printed, first) {
		t.Errorf("the sealing key is %q, and it prints:\n%s", first, printed)
	}
	if len(secret) != 64 || len(password) != 20 || strings.Count(printed, password) != 1 || strings.Contains(printed, secret) {
		t.Errorf("made %q and %q, printed:\n%s", secret, password, printed)
	}
	if printed, same, still := run(); same != secret || still != password || strings.Contains(printed, password) {
		t.Errorf("a second run leaves %q and %q, and prints:\n%s", same, still, printed)
	}
	if err := os.Rename(filepath.Join(admin, "admin-password"), filepath.Join(secrets, "admin-password")); err != nil {
		t.Fatal(err)
	}
	if printed, same, still := run(); same != secret || still != password || strings.Contains(printed, password) {
		t.Errorf("after an earlier version there are %q and %q, and it prints:\n%s", same, still, printed)
	}
	if again := sealKey(); again != first {
		t.Errorf("the sealing key becomes %q", again)
	}
	printed, given, mine := run("ORRERY_CLUSTER_SECRET=given", "ORRERY_ADMIN_INITIAL_PASSWORD=möhre ")
	if given != "given" || mine != "möhre " || strings.Contains(printed, "möhre") {
		t.Errorf("given values become %q and %q, and it prints:\n%s", given, mine, printed)
	}
}

func TestTheCertificatesOfComposeAreIssuedAgainByOneAuthority(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var before []byte
	for range 2 {
		if printed, err := runInit(t, t.TempDir(), t.TempDir(), dir); err != nil {
			t.Fatalf("%v: %s", err, printed)
		}
		authority, err := os.ReadFile(filepath.Join(dir, "trust", "etcd", "authority.crt"))
		if err != nil || before != nil && !bytes.Equal(authority, before) {
			t.Fatalf("a second run replaces the authority: %v", err)
		}
		before = authority
		for _, holder := range certified[1:] {
			text, err := os.ReadFile(filepath.Join(dir, "trust", holder, "trust.pem"))
			if err != nil {
				t.Fatal(err)
			}
			b, err := pki.ParseBundle(text)
			if err != nil {
				t.Fatalf("%s: %v", holder, err)
			}
			want := pki.Identity{Service: holder}
			if strings.HasPrefix(holder, "agent-") {
				want = pki.Identity{Service: pki.Agent, Name: holder}
			}
			if err := b.VerifyOwn(time.Now()); err != nil || b.Identity() != want {
				t.Errorf("%s: %v, %v", holder, b.Identity(), err)
			}
			forEtcd := x509.NewCertPool()
			forEtcd.AppendCertsFromPEM(authority)
			_, err = b.Certificate().Leaf.Verify(x509.VerifyOptions{Roots: forEtcd, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			if agent := want.Service == pki.Agent; agent != (err != nil) {
				t.Errorf("%s: etcd verifies its certificate with %v", holder, err)
			}
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "trust", "etcd", "etcd.crt"), filepath.Join(dir, "trust", "etcd", "etcd.key"))
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Leaf.VerifyHostname("etcd-2"); err != nil {
			t.Error(err)
		}
	}
}

func TestSecretsOfComposeThatCannotBeWrittenAreAFailure(t *testing.T) {
	t.Parallel()
	full := filepath.Join(t.TempDir(), "full.sh") // every write fails, as on a full disk
	if err := os.WriteFile(full, []byte("trap '' XFSZ; ulimit -f 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		secrets, admin, file string
		env                  []string
	}{
		"no directory of the secret":   {secrets: missing, admin: t.TempDir(), file: "cluster-secret"},
		"no directory of the password": {secrets: t.TempDir(), admin: missing, file: "admin-password"},
		"a full disk":                  {secrets: t.TempDir(), admin: t.TempDir(), file: "cluster-secret", env: []string{"BASH_ENV=" + full}},
		"a full disk, given values": {
			secrets: t.TempDir(), admin: t.TempDir(), file: "cluster-secret",
			env: []string{"BASH_ENV=" + full, "ORRERY_CLUSTER_SECRET=given", "ORRERY_ADMIN_INITIAL_PASSWORD=mine"},
		},
	} {
		printed, err := runInit(t, c.secrets, c.admin, t.TempDir(), c.env...)
		if err == nil || !strings.Contains(printed, "cannot write ") || strings.Contains(printed, "password of the user") {
			t.Errorf("%s: %v, and it prints:\n%s", name, err, printed)
		}
		for _, dir := range []string{c.secrets, c.admin} {
			left, _ := filepath.Glob(filepath.Join(dir, c.file+"*"))
			if left != nil {
				t.Errorf("%s: it leaves %q", name, left)
			}
		}
	}
}

func TestImagesThatComposeBuildsSayTheVersionOfTheirSources(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Build struct{ Args map[string]string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for name, service := range file.Services {
		if got := service.Build.Args["ORRERY_VERSION"]; got != "${ORRERY_VERSION:-}" {
			t.Errorf("%s is built with the version %q, want the environment's or none", name, got)
		}
	}
	dockerfile, err := os.ReadFile("../deployments/docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if compile, _, _ := strings.Cut(string(dockerfile), "# compiled."); !strings.Contains(compile, "\nARG ORRERY_VERSION\n") {
		t.Error("the stage that compiles takes no version")
	}
	ignored, err := os.ReadFile("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(ignored)), ".git") {
		t.Error("the build does not get .git, which tells the version")
	}

	root := t.TempDir()
	docker := filepath.Join(root, "deployments", "docker")
	script, err := os.ReadFile("../deployments/docker/build.sh")
	if err == nil {
		err = os.MkdirAll(docker, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(docker, "build.sh"), script, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	version := func(env ...string) string {
		t.Helper()
		c := exec.Command("bash", filepath.Join(docker, "build.sh"), "version")
		c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "GIT_CEILING_DIRECTORIES=" + filepath.Dir(root)}, env...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := version(); got != "devel" {
		t.Errorf("without git it is %q", got)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-qm", "all"}, {"tag", "v9.8.7"}} {
		c := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		c.Dir = root
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	if got := version(); got != "v9.8.7" {
		t.Errorf("with a tag it is %q", got)
	}
	if got := version("ORRERY_VERSION=mine"); got != "mine" {
		t.Errorf("given, it is %q", got)
	}
}

func TestAgentsInContainersRunInstancesAsAnotherUser(t *testing.T) {
	t.Parallel()
	dockerfile, err := os.ReadFile("../deployments/docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(dockerfile), "\nFROM base AS agent\n")
	agent, demo, _ := strings.Cut(rest, "\nFROM agent AS agent-demo\n")
	demo, _, _ = strings.Cut(demo, "\nFROM ")
	user := regexp.MustCompile(`ORRERY_INSTANCE_USER=(\S+)`).FindStringSubmatch(agent)
	if user == nil || !strings.Contains(agent, "useradd ") || !strings.Contains(agent, " "+user[1]+"\n") {
		t.Errorf("the image of the agent names no user for instances, or does not make it:\n%s", agent)
	}
	if strings.Contains(agent+demo, "\nUSER ") {
		t.Error("the agent is not root, so that its instances run as its own user")
	}
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			User        string
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for name, service := range file.Services {
		if _, set := service.Environment["ORRERY_INSTANCE_USER"]; strings.HasPrefix(name, "agent-") && (set || service.User != "") {
			t.Errorf("%s overrides the users of its image", name)
		}
	}
}
