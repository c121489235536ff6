package content

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// SourceKind is where a source gets its templates from.
type SourceKind string

// The kinds of sources.
const (
	SourceGit  SourceKind = "git"
	SourceS3   SourceKind = "s3"
	SourceHTTP SourceKind = "http"
	// SourceProgram is a program installed on templatesvc's machine.
	SourceProgram SourceKind = "program"
	// SourceConfigurations is a directory of Universe configurations on templatesvc's machine, one
	// JSON file each. It contains no templates and always declares groups.
	SourceConfigurations SourceKind = "configurations"
	// SourceDirectory is templates.dir of templatesvc. It is only displayed and has no record.
	SourceDirectory SourceKind = "directory"
)

// SourceKinds lists every kind that a record may have.
var SourceKinds = [...]SourceKind{SourceGit, SourceS3, SourceHTTP, SourceProgram, SourceConfigurations}

// Limits of a source.
const (
	MinSourceInterval     = 10 // seconds
	DefaultSourceInterval = 60
	maxSourceInterval     = 7 * 24 * 3600
	maxKnownHosts         = 64 << 10
)

// TemplateSource is a place from which templates are synced regularly. The gateway writes it. The
// templatesvc replica that owns its shard processes it.
//
// The content becomes templates in one of three ways: all of it becomes Template (always for
// http), each directory becomes a template of Group, or, without either, each directory
// <group>/<name>/ becomes a template.
type TemplateSource struct {
	record.Rev
	// Name is also the Origin of the heads the source publishes.
	Name string     `json:"name"`
	Kind SourceKind `json:"kind"`
	// URL is the repository for git (http, https, ssh or file), the endpoint for s3, the archive
	// or file for http.
	URL string `json:"url"`
	// Program is the file name of the program. Only for kind program.
	Program string `json:"program,omitempty"`
	// Branch, Tag and Commit select a version of the repository. At most one is set; none means
	// the default branch.
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Commit string `json:"commit,omitempty"`
	// Path is the directory inside the repository. Empty means all of it.
	Path string `json:"path,omitempty"`
	// KnownHosts are the keys of ssh servers, as in a known_hosts file.
	KnownHosts string `json:"knownHosts,omitempty"`
	// Bucket, Prefix and Region locate the content at an S3 endpoint. PathStyle puts the bucket
	// into the path, which most servers other than Amazon's require.
	Bucket    string `json:"bucket,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	Region    string `json:"region,omitempty"`
	PathStyle bool   `json:"pathStyle,omitempty"`
	// SHA256 pins the hash of the http download, in hex. Empty accepts any content.
	SHA256 string `json:"sha256,omitempty"`
	// HashURL is a URL with the current hash of the http download. It may be empty.
	HashURL string `json:"hashUrl,omitempty"`
	// File stores the http download as one file of the template. Empty unpacks it as an archive.
	File     string      `json:"file,omitempty"`
	Template TemplateRef `json:"template,omitzero"`
	Group    string      `json:"group,omitempty"`
	// Declares applies the groups and catalog that the repository declares in groups/*.yaml and
	// catalog.yaml. Its templates are in templates/ then. It is allowed for git and always set for
	// configurations, whose files are groups.
	Declares bool `json:"declares,omitempty"`
	// Confirmed is the SourceStatus.Held whose removals a user confirmed.
	Confirmed string `json:"confirmed,omitempty"`
	// IntervalSeconds is the time between two syncs. 0 means DefaultSourceInterval.
	IntervalSeconds int `json:"intervalSeconds,omitempty"`
	// Paused stops syncing. The published templates stay.
	Paused bool `json:"paused,omitempty"`
	// Sealed are the SourceCredentials, sealed. It may be nil.
	Sealed []byte `json:"sealed,omitempty"`
	// Asked counts the requests for an immediate sync.
	Asked int64 `json:"asked,omitempty"`
	// Attended is true if the last request came from a user, not a webhook. The first successful
	// sync after it holds back no removals from a directory of configurations.
	Attended  bool      `json:"attended,omitempty"`
	By        string    `json:"by,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// SourceCredentials are the credentials to read a source. They are stored sealed and never shown.
type SourceCredentials struct {
	// Token is sent to http. For git over http it is sent with User, which may be empty.
	User  string `json:"user,omitempty"`
	Token string `json:"token,omitempty"`
	// SSHKey is a private key in PEM format without a passphrase.
	SSHKey string `json:"sshKey,omitempty"`
	// AccessKey and SecretKey are the credentials for s3.
	AccessKey string `json:"accessKey,omitempty"`
	SecretKey string `json:"secretKey,omitempty"`
	// Webhook is the secret with which webhook calls are signed.
	Webhook string `json:"webhook,omitempty"`
}

// SourceCredentialsKind is the kind under which the credentials are sealed.
const SourceCredentialsKind = "template-source"

// Names returns the API names of the credentials that are set.
func (c SourceCredentials) Names() []string {
	names := []string{}
	for _, one := range []struct{ name, value string }{
		{"user", c.User}, {"token", c.Token}, {"sshKey", c.SSHKey}, {"accessKey", c.AccessKey}, {"secretKey", c.SecretKey}, {"webhook", c.Webhook},
	} {
		if one.value != "" {
			names = append(names, one.name)
		}
	}
	return names
}

// maxCredential bounds one credential, in bytes. A key file fits.
const maxCredential = 16 << 10

// Validate returns what is wrong with the credentials.
func (c SourceCredentials) Validate() []error {
	var p validate.Problems
	for _, v := range []string{c.User, c.Token, c.SSHKey, c.AccessKey, c.SecretKey, c.Webhook} {
		p.Check(len(v) <= maxCredential, "credentials", "must be at most %d bytes each", maxCredential)
	}
	p.Check(c.Webhook == "" || len(c.Webhook) >= 16, "credentials.webhook", "must have at least 16 characters, so that it cannot be guessed")
	p.Check(!strings.ContainsAny(c.Token+c.User, "\r\n\x00"), "credentials.token", "must not contain a line break: remove the one that was copied with the token")
	return p.List
}

// SourceState is the state of a source.
type SourceState string

// The states of a source.
const (
	SourceInSync SourceState = "IN_SYNC"
	SourceFailed SourceState = "FAILED"
	SourcePaused SourceState = "PAUSED"
	SourceHeld   SourceState = "HELD" // it would remove things, and the removal is not confirmed
)

// SourceStatus is the result of the latest sync of a source. Its owner writes it when something
// has changed.
type SourceStatus struct {
	record.Rev
	Name string `json:"name"`
	// Observed is the mod-revision of the source record this status is about.
	Observed int64 `json:"observed"`
	// Asked is the TemplateSource.Asked of the latest successful sync.
	Asked   int64       `json:"asked,omitempty"`
	State   SourceState `json:"state"`
	Message string      `json:"message,omitempty"`
	// Revision is what the source contained at the latest complete read: a commit or a hash.
	Revision string `json:"revision,omitempty"`
	// Held identifies the removals that wait for a confirmation: the revision, "-" and a hash of
	// the place and the removals. It is empty if none wait.
	Held string `json:"held,omitempty"`
	// Place is where Items and declarations were found: TemplateSource.Place, and for
	// configurations also the machine and directory.
	Place string `json:"place,omitempty"`
	// At is when the status last changed.
	At    time.Time    `json:"at"`
	Items []SourceItem `json:"items,omitempty"`
}

// SourceItem is the result for one template of a source.
type SourceItem struct {
	Template TemplateRef `json:"template"`
	// Digest is the published version, "" if it was not published.
	Digest  string `json:"digest,omitempty"`
	Message string `json:"message,omitempty"`
	// Kept says that the template is missing in the source and stays until its removal is
	// confirmed.
	Kept bool `json:"kept,omitempty"`
}

// MaxSourceTemplates bounds the templates of one source.
const MaxSourceTemplates = 500

// Interval returns the time between two syncs.
func (s TemplateSource) Interval() time.Duration {
	seconds := s.IntervalSeconds
	if seconds == 0 {
		seconds = DefaultSourceInterval
	}
	return time.Duration(seconds) * time.Second
}

// Place identifies the location of a source. If a source of the same name gets another place,
// nothing is known about what was published from the old one.
func (s TemplateSource) Place() string {
	text := strings.Join([]string{
		string(s.Kind), s.URL, s.Branch, s.Tag, s.Commit, s.Path, s.Bucket, s.Prefix, s.Template.String(), s.Group, strconv.FormatBool(s.Declares), s.Program,
	}, "\x00")
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// Validate returns everything that is wrong with the source, each as an Invalid error that names
// the field.
func (s TemplateSource) Validate() []error {
	var p validate.Problems
	p.Check(validate.ValidSegment(s.Name), "name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period, not %q", validate.Clip(s.Name))
	p.Check(s.Name != DirectoryOrigin, "name", "must not be %q, which is reserved for the template directory", DirectoryOrigin)
	p.Check(slices.Contains(SourceKinds[:], s.Kind), "kind", "must be one of git, s3, http, program, configurations, not %q", validate.Clip(string(s.Kind)))
	p.Check(s.Template == TemplateRef{} || s.Template.Valid() && !s.Template.Internal(), "template", "must be <group>/<name> and not a template reserved by Orrery, not %q", validate.Clip(s.Template.String()))
	p.Check(s.Group == "" || validate.ValidSegment(s.Group) && !TemplateRef{Group: s.Group}.Internal(), "group", "%q is not a template group, or is reserved by Orrery", validate.Clip(s.Group))
	p.Check(s.Group == "" || s.Template == TemplateRef{}, "group", "must not be set together with template")
	p.Check(s.IntervalSeconds == 0 || s.IntervalSeconds >= MinSourceInterval && s.IntervalSeconds <= maxSourceInterval,
		"intervalSeconds", "must be between %d and %d, is %d", MinSourceInterval, maxSourceInterval, s.IntervalSeconds)
	p.AddAll(s.validateURL())
	p.AddAll(s.validateGit())
	p.AddAll(s.validateS3())
	p.AddAll(s.validateHTTP())
	return p.List
}

func (s TemplateSource) validateURL() []error {
	var p validate.Problems
	if s.Kind == SourceProgram {
		p.Check(s.URL == "", "url", "must be empty: the program decides where it reads from")
		p.Check(validate.ValidSegment(s.Program) && s.Program[0] != '-', "program", "must be the file name of a program in sources.programs-dir of templatesvc, without a path, not %q", validate.Clip(s.Program))
		return p.List
	}
	p.Check(s.Program == "", "kind", "program is only allowed for kind program")
	if s.Kind == SourceConfigurations {
		p.Check(s.URL == "", "url", "must be empty: the directory is sources.configurations-dir of templatesvc")
		p.Check(s.Declares, "declares", "must be true: this kind of source only declares groups")
		p.Check(s.Template == TemplateRef{} && s.Group == "", "template", "must be empty, and group too: this kind of source has no templates")
		return p.List
	}
	if !slices.Contains(SourceKinds[:], s.Kind) { // its rules are unknown
		return p.List
	}
	schemes := map[SourceKind][]string{SourceGit: {"http", "https", "ssh", "file"}, SourceS3: {"http", "https"}, SourceHTTP: {"http", "https"}}[s.Kind]
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || len(s.URL) > MaxPathBytes || !slices.Contains(schemes, u.Scheme):
		p.Check(false, "url", "must be a URL that begins with one of %s", strings.Join(schemes, "://, ")+"://")
	case u.Scheme != "file" && u.Host == "":
		p.Check(false, "url", "must name a host")
	case u.User != nil && (u.Scheme == "http" || u.Scheme == "https"): // the user may be a token, and the URL is displayed
		p.Check(false, "url", "must not contain a user or password: use the credentials")
	case u.User != nil:
		_, secret := u.User.Password()
		p.Check(!secret, "url", "must not contain a password: use the token")
	}
	return p.List
}

func (s TemplateSource) validateGit() []error {
	var p validate.Problems
	given := 0
	for _, ref := range []string{s.Branch, s.Tag, s.Commit} {
		if ref != "" {
			given++
		}
		p.Check(len(ref) <= MaxPathBytes && !strings.ContainsAny(ref, " \x00\n~^:?*[\\"), "branch", "%q is not a valid git name", validate.Clip(ref))
	}
	p.Check(given <= 1, "branch", "at most one of branch, tag and commit may be set")
	p.Check(s.Commit == "" || hexOf(s.Commit, 20), "commit", "must be a full commit hash of 40 lower-case hex digits")
	p.Check(s.Path == "" || SafePath(s.Path), "path", "%q is not a path inside the repository", validate.Clip(s.Path))
	p.Check(len(s.KnownHosts) <= maxKnownHosts, "knownHosts", "must be at most %d bytes", maxKnownHosts)
	p.Check(s.Kind == SourceGit || given == 0 && s.Path == "" && s.KnownHosts == "", "kind", "branch, tag, commit, path and knownHosts are only allowed for kind git")
	p.Check(s.Kind == SourceGit || s.Kind == SourceConfigurations || !s.Declares, "kind", "declares is only allowed for kinds git and configurations")
	p.Check(s.Kind != SourceGit || !strings.HasPrefix(s.URL, "ssh://") || s.KnownHosts != "", "knownHosts", "is required for ssh: enter the server's keys as printed by ssh-keyscan")
	return p.List
}

func (s TemplateSource) validateS3() []error {
	var p validate.Problems
	if s.Kind != SourceS3 {
		p.Check(s.Bucket == "" && s.Prefix == "" && s.Region == "" && !s.PathStyle, "kind", "bucket, prefix, region and pathStyle are only allowed for kind s3")
		return p.List
	}
	p.Check(len(s.Bucket) >= 3 && len(s.Bucket) <= 63, "bucket", "must be 3 to 63 characters")
	p.Check(s.Prefix == "" || SafePath(strings.TrimSuffix(s.Prefix, "/")), "prefix", "%q is not a path", validate.Clip(s.Prefix))
	return p.List
}

func (s TemplateSource) validateHTTP() []error {
	var p validate.Problems
	if s.Kind != SourceHTTP {
		p.Check(s.SHA256 == "" && s.HashURL == "" && s.File == "", "kind", "sha256, hashUrl and file are only allowed for kind http")
		return p.List
	}
	p.Check(s.SHA256 == "" || hexOf(s.SHA256, 32), "sha256", "must be the SHA-256 of the file at url in 64 lower-case hex digits")
	p.Check(s.SHA256 == "" || s.HashURL == "", "hashUrl", "must not be set together with sha256")
	p.AddAll(s.validateHashURL())
	p.Check(s.File == "" || SafePath(s.File), "file", "%q is not a path inside the template", validate.Clip(s.File))
	p.Check(s.Template != TemplateRef{}, "template", "is required: the download becomes this template")
	return p.List
}

func (s TemplateSource) validateHashURL() []error {
	var p validate.Problems
	if s.HashURL == "" {
		return nil
	}
	u, err := url.Parse(s.HashURL)
	p.Check(err == nil && len(s.HashURL) <= MaxPathBytes && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "hashUrl", "must be an http:// or https:// URL with a host")
	p.Check(err != nil || u.User == nil, "hashUrl", "must not contain a user or password")
	p.Check(err != nil || u.Scheme != "http" || !strings.HasPrefix(s.URL, "https:"), "hashUrl", "must begin with https://, like url")
	return p.List
}

// hexOf reports whether s is n bytes in lower-case hex.
func hexOf(s string, n int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == n && strings.ToLower(s) == s
}
