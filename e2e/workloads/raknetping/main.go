// Command raknet-ping asks a Bedrock server for its status and prints the answer.
//
//	raknet-ping [-timeout 5s] ADDR
//
// It sends unconnected pings until one is answered, because UDP loses packets and
// a server may still be starting: it may not listen yet, or answer without any
// data before it knows its own status. It prints the pong's data, one line of fields
// separated by semicolons, and exits 0; it exits 1 when nobody answers in time
// and 2 when it is called wrongly. It keeps no state.
//
// It has a module of its own: the version of go-raknet it is pinned to is older
// than the one the game server links, and one module can hold only one of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sandertv/go-raknet"
)

const (
	// attempt bounds one ping, so that a lost packet costs this much.
	attempt = 500 * time.Millisecond
	// pause lies between attempts; a closed port refuses at once.
	pause = 50 * time.Millisecond
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("raknet-ping", flag.ContinueOnError)
	flags.SetOutput(stderr)
	timeout := flags.Duration("timeout", 5*time.Second, "how long to go on asking")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() != 1 {
		fmt.Fprintln(stderr, "usage: raknet-ping [-timeout 5s] ADDR, for example 127.0.0.1:19132")
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	pong, err := ping(ctx, flags.Arg(0))
	if err != nil {
		fmt.Fprintf(stderr, "raknet-ping: no answer from %s within %s: %v\n", flags.Arg(0), *timeout, err)
		return 1
	}
	fmt.Fprintf(stdout, "%s\n", pong)
	return 0
}

// ping asks until somebody answers or ctx ends; then the last attempt's error is returned.
func ping(ctx context.Context, addr string) ([]byte, error) {
	for {
		once, cancel := context.WithTimeout(ctx, attempt)
		pong, err := raknet.PingContext(once, addr)
		cancel()
		if err == nil && len(pong) == 0 {
			err = errors.New("it answers, but has no status yet")
		}
		if err == nil {
			return pong, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}
