package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SourceKind is what templates are brought from.
type SourceKind string

// The kinds of sources.
const (
	SourceGit  SourceKind = "git"
	SourceS3   SourceKind = "s3"
	SourceHTTP SourceKind = "http"
	// SourceProgram is a program that the operator of templatesvc's machine put there.
	SourceProgram SourceKind = "program"
	// SourceConfigurations is a directory of configurations in the words of Universe, one JSON
	// file each, on templatesvc's machine. It holds no templates, and always declares.
	SourceConfigurations SourceKind = "configurations"
	// SourceDirectory is templates.dir of templatesvc, which is no record: it is only shown.
	SourceDirectory SourceKind = "directory"
)

// SourceKinds lists every kind that a record may have, for tables and tests.
var SourceKinds = [...]SourceKind{SourceGit, SourceS3, SourceHTTP, SourceProgram, SourceConfigurations}

// Bounds of a source.
const (
	MinSourceInterval     = 10 // seconds
	DefaultSourceInterval = 60
	maxSourceInterval     = 7 * 24 * 3600
	maxKnownHosts         = 64 << 10
)

// TemplateSource is where templates are brought from, again and again. The gateway
// writes it; one replica of templatesvc, the owner of its shard, works on it.
//
// What a source holds becomes templates in one of three ways: all of it is Template, as
// of http always; or each directory is a template of Group; or, with neither,
// <group>/<name>/ are.
type TemplateSource struct {
	Rev
	// Name is also the Origin of the heads it publishes.
	Name string     `json:"name"`
	Kind SourceKind `json:"kind"`
	// URL is the repository of git (http, https, ssh or file), the endpoint of s3, the
	// archive or file of http.
	URL string `json:"url"`
	// Program is the file name of the program that brings what there is; of program alone.
	Program string `json:"program,omitempty"`
	// Branch, Tag and Commit choose what of a repository; at most one is given, none
	// means its default branch.
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Commit string `json:"commit,omitempty"`
	// Path is the directory of a repository that is looked at; "" for all of it.
	Path string `json:"path,omitempty"`
	// KnownHosts are the keys of ssh servers, as in a known_hosts file.
	KnownHosts string `json:"knownHosts,omitempty"`
	// Bucket, Prefix and Region say what of an S3 endpoint. PathStyle puts the bucket
	// into the path, as most servers but Amazon's want it.
	Bucket    string `json:"bucket,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	Region    string `json:"region,omitempty"`
	PathStyle bool   `json:"pathStyle,omitempty"`
	// SHA256 is the hash of what http brings, hex: nothing else is taken. "" follows the URL.
	SHA256 string `json:"sha256,omitempty"`
	// HashURL is the URL of the current hash of what http brings; "" without one.
	HashURL string `json:"hashUrl,omitempty"`
	// File makes what http brings one file of the template; "" unpacks it as an archive.
	File     string      `json:"file,omitempty"`
	Template TemplateRef `json:"template,omitzero"`
	Group    string      `json:"group,omitempty"`
	// Declares has the repository's groups and the catalog made as its groups/*.yaml and
	// catalog.yaml say; its templates lie in templates/ then. Of git, and always of
	// configurations, whose files are groups.
	Declares bool `json:"declares,omitempty"`
	// Confirmed is the SourceStatus.Held that may go.
	Confirmed string `json:"confirmed,omitempty"`
	// IntervalSeconds is between two looks at the source; 0 is DefaultSourceInterval.
	IntervalSeconds int `json:"intervalSeconds,omitempty"`
	// Paused keeps what was brought and brings nothing more.
	Paused bool `json:"paused,omitempty"`
	// Sealed are its SourceCredentials, sealed under the cluster secret. Nil: none.
	Sealed []byte `json:"sealed,omitempty"`
	// Asked counts how often somebody wanted it looked at at once.
	Asked int64 `json:"asked,omitempty"`
	// Attended says that a user asked last, and not a webhook: the first look after that
	// which does not fail holds back no removal from a directory of configurations.
	Attended  bool      `json:"attended,omitempty"`
	By        string    `json:"by,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// SourceCredentials are what a source is read with. They are stored sealed and shown
// to nobody.
type SourceCredentials struct {
	// Token is sent to http, and with User, which may be empty, to git over http.
	User  string `json:"user,omitempty"`
	Token string `json:"token,omitempty"`
	// SSHKey is a private key in PEM, without a passphrase.
	SSHKey string `json:"sshKey,omitempty"`
	// AccessKey and SecretKey are those of s3.
	AccessKey string `json:"accessKey,omitempty"`
	SecretKey string `json:"secretKey,omitempty"`
	// Webhook is what calls of its webhook are signed with.
	Webhook string `json:"webhook,omitempty"`
}

// SourceCredentialsKind is the kind the credentials are sealed as.
const SourceCredentialsKind = "template-source"

// Names are the credentials that there are, by the names clients give them.
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

// maxCredential bounds one credential, in bytes: a key file fits.
const maxCredential = 16 << 10

// Validate lists what is wrong with credentials.
func (c SourceCredentials) Validate() []error {
	var p problems
	for _, v := range []string{c.User, c.Token, c.SSHKey, c.AccessKey, c.SecretKey, c.Webhook} {
		p.check(len(v) <= maxCredential, "credentials", "must be at most %d bytes each", maxCredential)
	}
	p.check(c.Webhook == "" || len(c.Webhook) >= 16, "credentials.webhook", "must have at least 16 characters: whoever guesses it may have the source read")
	p.check(!strings.ContainsAny(c.Token+c.User, "\r\n\x00"), "credentials.token", "must not contain a line break: was one copied along?")
	return p.list
}

// SourceState is how a source stands.
type SourceState string

// The states of a source.
const (
	SourceInSync SourceState = "IN_SYNC"
	SourceFailed SourceState = "FAILED"
	SourcePaused SourceState = "PAUSED"
	SourceHeld   SourceState = "HELD" // it would remove what nobody confirmed
)

// SourceStatus is what came of the latest look at a source; written by its owner when
// something in it changed.
type SourceStatus struct {
	Rev
	Name string `json:"name"`
	// Observed is the mod-revision of the record this is about.
	Observed int64 `json:"observed"`
	// Asked is TemplateSource.Asked at the latest look that did not fail.
	Asked   int64       `json:"asked,omitempty"`
	State   SourceState `json:"state"`
	Message string      `json:"message,omitempty"`
	// Revision is what the source held when it was last read completely: a commit, a hash.
	Revision string `json:"revision,omitempty"`
	// Held names what is removed only when it is confirmed: the revision, "-" and a hash of
	// the place and all that would go; "" when nothing waits.
	Held string `json:"held,omitempty"`
	// Place is where Items, and what is declared, were found: TemplateSource.Place, and of
	// configurations which directory of which machine as well.
	Place string `json:"place,omitempty"`
	// At is when the status came to be as it is.
	At    time.Time    `json:"at"`
	Items []SourceItem `json:"items,omitempty"`
}

// SourceItem is what came of one template of a source.
type SourceItem struct {
	Template TemplateRef `json:"template"`
	// Digest is the version it was published as; "" when it was not.
	Digest  string `json:"digest,omitempty"`
	Message string `json:"message,omitempty"`
	// Kept says that it is not in the source, and stays until its removal is confirmed.
	Kept bool `json:"kept,omitempty"`
}

// MaxSourceTemplates bounds how many templates one source may have.
const MaxSourceTemplates = 500

// Interval is the time between two looks at the source.
func (s TemplateSource) Interval() time.Duration {
	seconds := s.IntervalSeconds
	if seconds == 0 {
		seconds = DefaultSourceInterval
	}
	return time.Duration(seconds) * time.Second
}

// Place names where a source is looked for: another record of the same name with another
// place says nothing about what was published from the one before.
func (s TemplateSource) Place() string {
	text := strings.Join([]string{
		string(s.Kind), s.URL, s.Branch, s.Tag, s.Commit, s.Path, s.Bucket, s.Prefix, s.Template.String(), s.Group, strconv.FormatBool(s.Declares), s.Program,
	}, "\x00")
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// Validate lists everything wrong with a source, each an Invalid error that names the field.
func (s TemplateSource) Validate() []error {
	var p problems
	p.check(validSegment(s.Name), "name", "must be 1 to 64 letters, digits, _ . and -, not starting with a period; %q is not", clip(s.Name))
	p.check(s.Name != DirectoryOrigin, "name", "must not be %q, which is the directory of templates", DirectoryOrigin)
	p.check(slices.Contains(SourceKinds[:], s.Kind), "kind", "must be one of git, s3, http, program, configurations; %q is not known", clip(string(s.Kind)))
	p.check(s.Template == TemplateRef{} || s.Template.Valid() && !s.Template.Internal(), "template", "is not <group>/<name>, or Orrery's own: %q", clip(s.Template.String()))
	p.check(s.Group == "" || validSegment(s.Group) && !TemplateRef{Group: s.Group}.Internal(), "group", "%q is not a template group, or Orrery's own", clip(s.Group))
	p.check(s.Group == "" || s.Template == TemplateRef{}, "group", "must not be given beside template: choose one")
	p.check(s.IntervalSeconds == 0 || s.IntervalSeconds >= MinSourceInterval && s.IntervalSeconds <= maxSourceInterval,
		"intervalSeconds", "must be between %d and %d, is %d", MinSourceInterval, maxSourceInterval, s.IntervalSeconds)
	p.addAll(s.validateURL())
	p.addAll(s.validateGit())
	p.addAll(s.validateS3())
	p.addAll(s.validateHTTP())
	return p.list
}

func (s TemplateSource) validateURL() []error {
	var p problems
	if s.Kind == SourceProgram {
		p.check(s.URL == "", "url", "must not be given: a program knows itself where it looks")
		p.check(validSegment(s.Program) && s.Program[0] != '-', "program", "must be the file name of a program in sources.programs-dir of templatesvc, without a path; %q is not", clip(s.Program))
		return p.list
	}
	p.check(s.Program == "", "kind", "only program has program")
	if s.Kind == SourceConfigurations {
		p.check(s.URL == "", "url", "must not be given: the directory is sources.configurations-dir of templatesvc")
		p.check(s.Declares, "declares", "must be true: what is there are configurations alone")
		p.check(s.Template == TemplateRef{} && s.Group == "", "template", "must not be given, nor group: there are no templates")
		return p.list
	}
	if !slices.Contains(SourceKinds[:], s.Kind) { // what that would be is not known
		return p.list
	}
	schemes := map[SourceKind][]string{SourceGit: {"http", "https", "ssh", "file"}, SourceS3: {"http", "https"}, SourceHTTP: {"http", "https"}}[s.Kind]
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || len(s.URL) > MaxPathBytes || !slices.Contains(schemes, u.Scheme):
		p.check(false, "url", "must be a URL that begins with one of %s", strings.Join(schemes, "://, ")+"://")
	case u.Scheme != "file" && u.Host == "":
		p.check(false, "url", "must name a host")
	case u.User != nil && (u.Scheme == "http" || u.Scheme == "https"): // a token may stand for a user, and the URL is shown
		p.check(false, "url", "must hold neither user nor password: give them as credentials")
	case u.User != nil:
		_, secret := u.User.Password()
		p.check(!secret, "url", "must not hold a password: give it as token")
	}
	return p.list
}

func (s TemplateSource) validateGit() []error {
	var p problems
	given := 0
	for _, ref := range []string{s.Branch, s.Tag, s.Commit} {
		if ref != "" {
			given++
		}
		p.check(len(ref) <= MaxPathBytes && !strings.ContainsAny(ref, " \x00\n~^:?*[\\"), "branch", "%q is not a name git allows", clip(ref))
	}
	p.check(given <= 1, "branch", "only one of branch, tag and commit may be given")
	p.check(s.Commit == "" || hexOf(s.Commit, 20), "commit", "must be all 40 digits of a commit")
	p.check(s.Path == "" || SafePath(s.Path), "path", "%q is not a path inside the repository", clip(s.Path))
	p.check(len(s.KnownHosts) <= maxKnownHosts, "knownHosts", "must be at most %d bytes", maxKnownHosts)
	p.check(s.Kind == SourceGit || given == 0 && s.Path == "" && s.KnownHosts == "", "kind", "only git has branch, tag, commit, path and knownHosts")
	p.check(s.Kind == SourceGit || s.Kind == SourceConfigurations || !s.Declares, "kind", "only git and configurations have declares")
	p.check(s.Kind != SourceGit || !strings.HasPrefix(s.URL, "ssh://") || s.KnownHosts != "", "knownHosts", "must be given for ssh, as ssh-keyscan prints it: no server is trusted blindly")
	return p.list
}

func (s TemplateSource) validateS3() []error {
	var p problems
	if s.Kind != SourceS3 {
		p.check(s.Bucket == "" && s.Prefix == "" && s.Region == "" && !s.PathStyle, "kind", "only s3 has bucket, prefix, region and pathStyle")
		return p.list
	}
	p.check(len(s.Bucket) >= 3 && len(s.Bucket) <= 63, "bucket", "must be 3 to 63 characters")
	p.check(s.Prefix == "" || SafePath(strings.TrimSuffix(s.Prefix, "/")), "prefix", "%q is not a path", clip(s.Prefix))
	return p.list
}

func (s TemplateSource) validateHTTP() []error {
	var p problems
	if s.Kind != SourceHTTP {
		p.check(s.SHA256 == "" && s.HashURL == "" && s.File == "", "kind", "only http has sha256, hashUrl and file")
		return p.list
	}
	p.check(s.SHA256 == "" || hexOf(s.SHA256, 32), "sha256", "must be the 64 hexadecimal digits of the hash of the file at url, in lower case")
	p.check(s.SHA256 == "" || s.HashURL == "", "hashUrl", "must not be given beside sha256: a pinned hash does not change")
	p.addAll(s.validateHashURL())
	p.check(s.File == "" || SafePath(s.File), "file", "%q is not a path inside the template", clip(s.File))
	p.check(s.Template != TemplateRef{}, "template", "must be given: an artifact is one template")
	return p.list
}

func (s TemplateSource) validateHashURL() []error {
	var p problems
	if s.HashURL == "" {
		return nil
	}
	u, err := url.Parse(s.HashURL)
	p.check(err == nil && len(s.HashURL) <= MaxPathBytes && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", "hashUrl", "must be a URL that begins with http:// or https:// and names a host")
	p.check(err != nil || u.User == nil, "hashUrl", "must hold neither user nor password")
	p.check(err != nil || u.Scheme != "http" || !strings.HasPrefix(s.URL, "https:"), "hashUrl", "must begin with https:// as url does")
	return p.list
}

// hexOf reports whether s is n bytes in lower-case hex.
func hexOf(s string, n int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == n && strings.ToLower(s) == s
}
