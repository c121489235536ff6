package orrery

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// parse returns the frames of a stream and the error that ended it.
func parse(in io.Reader) (all []frame, err error) {
	for r := newFrameReader(in); ; {
		f, err := r.next()
		if err != nil {
			return all, err
		}
		all = append(all, f)
	}
}

func TestFramesAreParsedAsTheStandardSays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in   string
		want []frame
		err  error
	}{
		"an event has a name, an ID and data": {
			"event: end\nid: 7\ndata: x\n\n", []frame{{event: "end", id: "7", hasID: true, data: []byte("x"), hasData: true}}, io.EOF,
		},
		"one space after the colon is not part of the value": {
			"data:  x\n\ndata:x\n\n", []frame{{data: []byte(" x"), hasData: true}, {data: []byte("x"), hasData: true}}, io.EOF,
		},
		"data lines are joined": {"data: a\ndata\ndata: b\n\n", []frame{{data: []byte("a\n\nb"), hasData: true}}, io.EOF},
		"empty data are data":   {"data: \n\n", []frame{{hasData: true}}, io.EOF},
		"a comment has neither": {": keep-alive\n\n", []frame{{}}, io.EOF},
		"an ID may come alone":  {": keep-alive\nid: 9-2\n\n", []frame{{id: "9-2", hasID: true}}, io.EOF},
		"an ID may be empty":    {"id\ndata: x\n\n", []frame{{hasID: true, data: []byte("x"), hasData: true}}, io.EOF},
		"an ID has no NUL":      {"id: 1\x002\n\n", []frame{{}}, io.EOF},
		"unknown fields do not matter": {
			"retry: 10\nother: x\ndata: y\n\n", []frame{{data: []byte("y"), hasData: true}}, io.EOF,
		},
		"lines end with LF, CR or both": {
			"data: a\r\n\r\ndata: b\r\rdata: c\n\n",
			[]frame{{data: []byte("a"), hasData: true}, {data: []byte("b"), hasData: true}, {data: []byte("c"), hasData: true}},
			io.EOF,
		},
		"a byte order mark is skipped":        {"\uFEFFdata: a\n\n", []frame{{data: []byte("a"), hasData: true}}, io.EOF},
		"a frame that was cut is not a frame": {"data: a\n\nid: 3\ndata: b\n", []frame{{data: []byte("a"), hasData: true}}, io.ErrUnexpectedEOF},
		"nor is a line that was cut":          {"data: a\n\ndata: b", []frame{{data: []byte("a"), hasData: true}}, io.ErrUnexpectedEOF},
		"the longest frame": {
			"data:" + strings.Repeat("x", maxFrame-7) + "\n\n", []frame{{data: bytes.Repeat([]byte("x"), maxFrame-7), hasData: true}}, io.EOF,
		},
		"a longer line":            {"data:" + strings.Repeat("x", maxFrame) + "\n\n", nil, errFrameTooLong},
		"a frame of many lines":    {strings.Repeat("data: x\n", maxFrame/8+1) + "\n", nil, errFrameTooLong},
		"a frame of many comments": {strings.Repeat(": comment\n", maxFrame/10+1), nil, errFrameTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(strings.NewReader(test.in))
			if !errors.Is(err, test.err) || len(got) != len(test.want) {
				t.Fatalf("%.300v, %v; want %.300v, %v", got, err, test.want, test.err)
			}
			for n := range got {
				if !same(got[n], test.want[n]) {
					t.Errorf("frame %d is %.300v, want %.300v", n, got[n], test.want[n])
				}
			}
		})
	}
}

// same compares frames, without the difference of nil and no data.
func same(a, b frame) bool {
	return bytes.Equal(a.data, b.data) && a.event == b.event && a.id == b.id && a.hasID == b.hasID && a.hasData == b.hasData
}

// write appends a frame to a stream.
func (f frame) write(out *bytes.Buffer) {
	if f.event != "" {
		out.WriteString("event: " + f.event + "\n")
	}
	if f.hasID {
		out.WriteString("id: " + f.id + "\n")
	}
	if f.hasData {
		for line := range bytes.SplitSeq(f.data, []byte{'\n'}) {
			out.WriteString("data: ")
			out.Write(line)
			out.WriteByte('\n')
		}
	}
	out.WriteByte('\n')
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("event: connected\ndata: {}\n\n: keep-alive\nid: 5\n\nid: 6-1\ndata: a\ndata: b\r\n\r\n"))
	f.Add([]byte("\uFEFFid\n\ndata\rdata:\r\r\ndata: cut"))
	f.Add([]byte("id: a\x00b\nevent\n\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err := parse(bytes.NewReader(in))
		bytewise, errBytewise := parse(iotest.OneByteReader(bytes.NewReader(in)))
		if !reflect.DeepEqual(whole, bytewise) || !errors.Is(err, errBytewise) {
			t.Errorf("%v, %v; byte by byte %v, %v", whole, err, bytewise, errBytewise)
		}
		var out bytes.Buffer
		for _, f := range whole {
			f.write(&out)
		}
		again, err := parse(&out)
		if len(again) != len(whole) || !errors.Is(err, io.EOF) {
			t.Fatalf("%d frames were written and %d read: %v", len(whole), len(again), err)
		}
		for n := range whole {
			if !same(whole[n], again[n]) {
				t.Errorf("frame %v was written and read as %v", whole[n], again[n])
			}
		}
	})
}
