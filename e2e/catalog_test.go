package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
)

func TestAnInstanceRunsTheJarOfTheCatalog(t *testing.T) {
	t.Parallel()
	const jar = "PK\x03\x04 not really a jar \x00\xff"
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, jar) }))
	t.Cleanup(site.Close)
	tools := cluster.OpenDir(t) // a fake java that runs while the jar exists
	if err := os.WriteFile(filepath.Join(tools, "java"), []byte("#!/bin/sh\n[ -s server.jar ] && exec cat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	admin.Do("POST", "/api/v1/cluster/config", map[string]any{
		"parentVersion": 0, "patch": map[string]any{"network.allowedEgress": []string{"127.0.0.1"}},
	}).OK(201)
	sum := sha256.Sum256([]byte(jar))
	admin.Do("POST", "/api/v1/catalog/PAPER/versions", map[string]string{
		"version": "1.21", "downloadUrl": site.URL + "/paper.jar", "sha256": hex.EncodeToString(sum[:]),
	}).OK(201)
	admin.Do("PUT", "/api/v1/catalog/PAPER/versions/1.21/recommended", nil).OK(200)
	createGroup(t, admin, map[string]any{
		"name": "paper", "platform": "PAPER", "jarFile": "server.jar", "readiness": map[string]any{"type": "none"}, "memoryMb": 64, "shutdownGraceSeconds": 0,
		"env": map[string]string{"PATH": tools + ":/usr/bin:/bin"},
	})
	admin.Do("POST", "/api/v1/groups/paper/start", nil).OK(200)
	i := admin.AwaitState("paper-1", "RUNNING")
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(i.PID), "cwd", "server.jar"))
	if err != nil || string(b) != jar {
		t.Errorf("it runs %q, %v", b, err)
	}
}
