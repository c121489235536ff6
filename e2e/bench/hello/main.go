// Command hello serves constant answers. It shows the speed of gin itself on a machine, with
// which e2e/bench compares the API.
//
//	hello -bodies DIRECTORY
//
// GET /hello answers with a constant, and GET /<name> with the file of that name. The
// command listens on a free loopback port, prints its URL in its first line of output, and
// ends on SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gin-gonic/gin"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("hello", flag.ContinueOnError)
	fs.SetOutput(stderr)
	bodies := fs.String("bodies", "", "directory of the bodies that are sent")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *bodies, stdout); err != nil {
		fmt.Fprintln(stderr, "hello:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, bodies string, stdout io.Writer) error {
	handler, err := routes(bodies)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "http://"+l.Addr().String())
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

func routes(bodies string) (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	if bodies == "" {
		return e, nil
	}
	entries, err := os.ReadDir(bodies)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		body, err := os.ReadFile(filepath.Join(bodies, entry.Name()))
		if err != nil {
			return nil, err
		}
		e.GET("/"+entry.Name(), func(c *gin.Context) { c.Data(http.StatusOK, "application/json; charset=utf-8", body) })
	}
	return e, nil
}
