package templatesvc_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/disktest"
	"github.com/orreryhq/orrery/libs/errs"
)

func TestAFullDiskIsToldAndPublishesNothing(t *testing.T) { disktest.Small(t, "3m", publishOnFullDisk) }

// publishOnFullDisk publishes more than fits on the disk, in every form in which uploads
// are stored. Earlier versions must survive, and a collection must free space.
func publishOnFullDisk(t *testing.T, dir string) {
	w := newWorld(t)
	w.blobs = dir
	s, _ := w.start("a")
	d := desk{w, clientOf(s)}
	before := d.put("small", "one")
	large := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(large) // never fails
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	f, err := z.CreateHeader(&zip.FileHeader{Name: "large", Method: zip.Store})
	if err == nil {
		_, err = f.Write(large)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	for what, publish := range map[string]func() error{
		"a file": func() error {
			_, err := d.PutFile(t.Context(), by("large"), 0, false, bytes.NewReader(large))
			return err
		},
		"an archive": func() error {
			_, err := d.Import(t.Context(), by(""), false, "zip", bytes.NewReader(packed.Bytes()))
			return err
		},
	} {
		if err := publish(); !errs.Is(err, errs.Exhausted) || !strings.Contains(errs.MessageOf(err), "is full") {
			t.Errorf("%s larger than the disk: %v (%s)", what, err, errs.KindOf(err))
		}
		if left, err := os.ReadDir(filepath.Join(dir, "incoming")); err != nil || len(left) > 0 {
			t.Errorf("%s has left %v behind: %v", what, left, err)
		}
	}
	if h, ok := w.head(); !ok || h.Digest != before {
		t.Errorf("the head is %+v", h)
	}
	if got := d.files(before); got != "small=one" {
		t.Errorf("the version from before has %s", got)
	}
	// Unreferenced content is removed by the regular collections.
	var after string
	await.That(t, "room for a small file", func() string {
		if _, err := d.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		e, err := d.PutFile(t.Context(), by("other"), 0, false, bytes.NewReader(large[:1<<20]))
		after = e.Head.Digest
		return await.Unless(err == nil, "%v", err)
	})
	if after == before {
		t.Error("the small file is no version")
	}
}
