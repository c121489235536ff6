package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/atomicfile"
	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
)

const joinUsage = `nodeagent join makes this host a node, with a token that "orrery create join-token NODE" has printed.
		nodeagent join [-dir DIR] [-force] TOKEN
It makes a key, gets a certificate for it from a gateway, and writes two files:
		DIR/trust.pem   the key and the certificate, which the agent renews
		DIR/join.env    the settings of the agent: for systemd's EnvironmentFile=, or for a shell
TOKEN may be - to read it from standard input, so that it is in no list of processes.
		-dir DIR    the directory of the files; the agent must be able to write it (default .)
		-force      replace files of an earlier join
Exit codes: 0 done, 1 the host may not join, or no gateway answers, 2 wrong usage.
`

// The files that join writes. keyName has the key until the host has joined, so that a join whose answer was
// lost can be repeated.
const (
	keyName   = "join.key"
	trustName = "trust.pem"
	envName   = "join.env"
)

// join runs "nodeagent join" with the arguments after that word.
func join(args []string, stdout, stderr io.Writer) int {
	set := flag.NewFlagSet("join", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	dir, force := set.String("dir", ".", ""), set.Bool("force", false, "")
	words, err := parseMixed(set, args, true)
	if errors.Is(err, flag.ErrHelp) || len(words) == 1 && words[0] == "help" {
		fmt.Fprint(stdout, joinUsage)
		return exitOK
	}
	if err == nil && len(words) != 1 {
		err = errors.New("pass one token")
	}
	if err != nil {
		fmt.Fprintf(stderr, "nodeagent join: %v\nSee nodeagent join help.\n", err)
		return exitUsage
	}
	ctx, done := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer done()
	if err := joinWith(ctx, words[0], *dir, *force, stdout); err != nil {
		fmt.Fprintf(stderr, "nodeagent join: %s\n", reasonOf(err))
		if errs.Is(err, errs.Invalid) {
			return exitUsage
		}
		return exitFailure
	}
	return exitOK
}

// reasonOf is the message of an error, or the text of an error from outside.
func reasonOf(err error) string {
	if message := errs.MessageOf(err); message != errs.MessageOf(nil) {
		return message
	}
	return err.Error()
}

func joinWith(ctx context.Context, text, dir string, force bool, stdout io.Writer) error {
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(os.Stdin, 1<<16))
		if err != nil {
			return err
		}
		text = string(b)
	}
	token, err := enroll.ParseToken(text)
	if err != nil {
		return err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	trust, env := filepath.Join(dir, trustName), filepath.Join(dir, envName)
	if _, err := os.Lstat(trust); !errors.Is(err, fs.ErrNotExist) && !force {
		return errs.New(errs.Invalid, "%s exists: this host has joined before; pass -force to join again", trust)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	request, err := keptRequest(filepath.Join(dir, keyName))
	if err != nil {
		return err
	}
	got, bundle, err := enroll.Join(ctx, token, request, time.Now)
	if err != nil {
		return err
	}
	settings := fmt.Sprintf("ORRERY_NODE=%s\nORRERY_TRUST_FILE=%s\nORRERY_GATEWAYS=%s\nORRERY_API_URL=%s\n", token.Node, trust, strings.Join(got.Gateways, ","), got.APIURL)
	if err := errors.Join(atomicfile.Write(trust, bundle), atomicfile.Write(env, []byte(settings))); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, keyName)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "this host is node %s: its certificate is in %s, the settings of its agent are in %s\n", token.Node, trust, env)
	return nil
}

// keptRequest returns the request for the key of an earlier attempt, or for a new key, which it keeps.
func keptRequest(path string) (pki.SigningRequest, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		return pki.SigningRequestFor(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return pki.SigningRequest{}, err
	}
	request, err := pki.NewSigningRequest()
	if err != nil {
		return request, err
	}
	return request, atomicfile.Write(path, request.Key)
}
