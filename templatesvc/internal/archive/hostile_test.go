package archive_test

import (
	"archive/tar"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/templatesvc/internal/archive"
)

// hostile are malicious names and kinds that both tar and zip can express.
var hostile = []struct {
	rule    string
	members []member
	want    string
}{
	{"a path out of the tree", []member{{name: "../x"}}, "leads out of the template by .."},
	{"a path out and in again", []member{{name: "a/../../x"}}, "leads out of the template by .."},
	{"a path that stays inside by ..", []member{{name: "a/../x"}}, "leads out of the template by .."},
	{"an absolute path", []member{{name: "/etc/passwd"}}, "is an absolute path"},
	{"a drive", []member{{name: `C:/x`}}, "begins with a drive"},
	{"a drive and backslashes", []member{{name: `C:\x`}}, `has a \ in its name`},
	{"backslashes that lead out", []member{{name: `a\..\..\x`}}, `has a \ in its name`},
	{"a control character", []member{{name: "a\nb"}}, "has a control character"},
	{"a name of 256 bytes", []member{{name: strings.Repeat("x", 256)}}, "longer than 255 bytes"},
	{"65 directories", []member{{name: strings.Repeat("d/", 65) + "x"}}, "lies too deep"},
	{"a file twice", []member{{name: "a"}, {name: "./a"}}, `"a" is in the archive twice`},
	{"a directory that is a file", []member{{name: "a"}, {name: "a/b"}}, `"a" is both a file and a directory`},
	{"a file that is a directory", []member{{name: "a/b"}, {name: "a"}}, `"a" is in the archive twice`},
	{"names that differ in case", []member{{name: "ReadMe"}, {name: "README"}}, `"ReadMe" and "README" differ only in case`},
	{"directories that differ in case", []member{{name: "Conf/a"}, {name: "conf/b"}}, `"Conf" and "conf" differ only in case`},
	{"letters put together otherwise", []member{{name: "caf\u00e9"}, {name: "cafe\u0301"}}, `"caf\u00e9" and "cafe\u0301" differ only in how their letters`},
	{"letters one system holds for one", []member{{name: "\u212a"}, {name: "k"}}, "differ only in case"},
	{"a link to an absolute path", []member{{name: "l", flag: tar.TypeSymlink, link: "/etc/passwd"}}, `the link "l" leads out of the template, to "/etc/passwd"`},
	{"a link out", []member{{name: "a/l", flag: tar.TypeSymlink, link: "../../x"}}, `the link "a/l" leads out`},
	{"a link out by backslashes", []member{{name: "l", flag: tar.TypeSymlink, link: `..\x`}}, "leads out"},
	{"a link to nothing", []member{{name: "l", flag: tar.TypeSymlink, link: ""}}, "leads out"},
	{
		"links that lead out one through the other",
		[]member{{name: "p/q/up", flag: tar.TypeSymlink, link: "../.."}, {name: "p/q/evil", flag: tar.TypeSymlink, link: "up/../x"}},
		`the link "p/q/evil" leads out`,
	},
	{
		"the same, the other way round",
		[]member{{name: "p/q/evil", flag: tar.TypeSymlink, link: "up/../x"}, {name: "p/q/up", flag: tar.TypeSymlink, link: "../.."}},
		`the link "p/q/evil" leads out`,
	},
	{"a circle of links", []member{{name: "a", flag: tar.TypeSymlink, link: "b"}, {name: "b", flag: tar.TypeSymlink, link: "a"}}, "leads in a circle"},
	{"a file through a link", []member{{name: "l", flag: tar.TypeSymlink, link: "d"}, {name: "l/x"}}, `"l/x" lies below the link "l"`},
	{"a link in place of a directory", []member{{name: "l/x"}, {name: "l", flag: tar.TypeSymlink, link: "d"}}, `"l" is in the archive twice`},
	{"a device", []member{{name: "d", flag: tar.TypeChar, devmajor: 1}}, "a device"},
	{"a pipe", []member{{name: "p", flag: tar.TypeFifo}}, "a pipe"},
}

func TestHostileEntriesAreRefusedByName(t *testing.T) {
	for _, c := range hostile {
		plain := tarOf(t, c.members...)
		for format, b := range map[archive.Format][]byte{archive.Zip: zipOf(t, c.members...), archive.Tar: plain, archive.TarGzip: gz(t, plain)} {
			t.Run(c.rule+" in "+string(format), func(t *testing.T) { refused(t, b, options(), errs.Malformed, c.want) })
		}
	}
}

func TestWhatOnlyTarsHoldIsRefusedByName(t *testing.T) {
	for rule, c := range map[string]struct {
		members []member
		want    string
	}{
		"a hard link out":            {[]member{{name: "h", flag: tar.TypeLink, link: "../../etc/passwd"}}, "leads out of the archive"},
		"a hard link to the root":    {[]member{{name: "h", flag: tar.TypeLink, link: "/etc/passwd"}}, "leads out of the archive"},
		"a hard link to what comes":  {[]member{{name: "h", flag: tar.TypeLink, link: "a"}, {name: "a"}}, "no file before it"},
		"a hard link to a link":      {[]member{{name: "l", flag: tar.TypeSymlink, link: "a"}, {name: "h", flag: tar.TypeLink, link: "l"}}, "no file before it"},
		"a hard link to itself":      {[]member{{name: "h", flag: tar.TypeLink, link: "h"}}, "no file before it"},
		"a block device":             {[]member{{name: "d", flag: tar.TypeBlock, devmajor: 8}}, "a device"},
		"a kind nobody knows":        {[]member{{name: "d", flag: tar.TypeCont}}, "of a kind templates do not have"},
		"a name that is not UTF-8":   {[]member{{name: "a\xff"}}, "not UTF-8"},
		"a target that is not UTF-8": {[]member{{name: "l", flag: tar.TypeSymlink, link: "\xff"}}, "leads out"},
	} {
		t.Run(rule, func(t *testing.T) { refused(t, tarOf(t, c.members...), options(), errs.Malformed, c.want) })
	}
}
