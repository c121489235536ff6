package artifact

import (
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// maxHashFile is the maximum size of a file at a hashUrl, in bytes.
const maxHashFile = 64 << 10

const sha256Name = "sha256"

// digest is a hash that an artifact must have. An empty sum accepts any.
type digest struct{ name, sum string }

// algorithms are the accepted hash functions by their number of hexadecimal digits. MD5 and
// SHA-1 only detect damage, not attacks.
var algorithms = map[int]struct {
	name string
	make func() hash.Hash
}{
	hex.EncodedLen(md5.Size):    {"md5", md5.New},
	hex.EncodedLen(sha1.Size):   {"sha1", sha1.New},
	hex.EncodedLen(sha256.Size): {sha256Name, sha256.New},
	hex.EncodedLen(sha512.Size): {"sha512", sha512.New},
}

// hash computes the digest. Without a sum it computes SHA-256.
func (d digest) hash() hash.Hash {
	if a, ok := algorithms[len(d.sum)]; ok {
		return a.make()
	}
	return sha256.New()
}

// revision returns the revision of content with this digest, or "" without a sum.
func (d digest) revision() string {
	if d.name == sha256Name {
		return d.sum
	}
	return d.name + ":" + d.sum
}

// published returns the digest at the source's hashUrl.
func published(ctx context.Context, r sources.Request) (digest, error) {
	client := r.Dialer.Client()
	defer client.CloseIdleConnections()
	resp, err := get(ctx, client, r, r.Source.HashURL, nil)
	if err != nil {
		return digest{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return digest{}, errs.New(errs.Unavailable, "the server of hashUrl answers %s: look at that URL and the token", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxHashFile+1))
	switch {
	case err != nil:
		return digest{}, sources.Unreachable("the server of hashUrl", err)
	case len(text) > maxHashFile:
		return digest{}, errs.New(errs.TooLarge, "the file at hashUrl is larger than %d KiB: it must be a file of hashes", maxHashFile>>10)
	}
	name := ""
	if u, err := url.Parse(r.Source.URL); err == nil {
		name = path.Base(u.Path)
	}
	d, ok := parse(string(text), name)
	if !ok {
		return d, errs.Field("hashUrl", "has no hash of %s: it must be hexadecimal digits of MD5, SHA-1, SHA-256 or SHA-512, alone or as sha256sum prints them", name)
	}
	return d, nil
}

// parse reads the hash of a file from the output of sha256sum or a similar program. It takes the
// line that names the file, or else the only hash.
func parse(text, name string) (found digest, ok bool) {
	hashes := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		sum := strings.ToLower(fields[0])
		a, known := algorithms[len(sum)]
		if _, err := hex.DecodeString(sum); err != nil || !known {
			continue
		}
		d := digest{a.name, sum}
		if len(fields) == 2 && path.Base(strings.TrimPrefix(fields[1], "*")) == name {
			return d, true
		}
		found, hashes = d, hashes+1
	}
	return found, hashes == 1
}

// sameHost reports whether two URLs have the same scheme and host.
func sameHost(a, b string) bool {
	x, err := url.Parse(a)
	if err != nil {
		return false
	}
	y, err := url.Parse(b)
	return err == nil && x.Scheme == y.Scheme && strings.EqualFold(x.Host, y.Host)
}
