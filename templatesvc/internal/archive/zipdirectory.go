package archive

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/orreryhq/orrery/libs/errs"
)

// Sizes of the records of a zip's directory.
const (
	zipEnd         = 22 // bytes of the end record, without the comment
	zipEnd64       = 56
	zipLocator     = 20
	zipMember      = 46
	zipMostComment = 1<<16 - 1
)

var (
	signEnd     = []byte("PK\x05\x06")
	signEnd64   = []byte("PK\x06\x06")
	signLocator = []byte("PK\x06\x07")
	signMember  = []byte("PK\x01\x02")
)

// directory is the position of a zip's directory.
type directory struct {
	at, size, end int64
	entries       uint64 // as the zip claims
}

// checkDirectory counts a zip's entries before zip.NewReader allocates memory for each. The
// number that the zip claims is not reliable.
func checkDirectory(r io.ReaderAt, size int64, l Limits) error {
	d, err := findDirectory(r, size)
	if err != nil {
		return err
	}
	if d.at < 0 || d.size < 0 || d.at+d.size != d.end {
		return errs.New(errs.Malformed, "the file has other bytes before or inside the zip: send only the zip")
	}
	if d.entries > uint64(l.Entries) {
		return errs.New(errs.TooLarge, "the archive has more than %d entries: split it", l.Entries)
	}
	var member [zipMember]byte
	for at, n := d.at, 0; at < d.end; n++ {
		if n >= l.Entries {
			return errs.New(errs.TooLarge, "the archive has more than %d entries: split it", l.Entries)
		}
		if _, err := r.ReadAt(member[:], at); err != nil {
			return damaged(Zip, "", err)
		}
		if !bytes.HasPrefix(member[:], signMember) {
			return errs.New(errs.Malformed, "the zip's table of contents is damaged: pack it again")
		}
		for _, field := range []int{28, 30, 32} { // name, extra, comment
			at += int64(binary.LittleEndian.Uint16(member[field:]))
		}
		at += zipMember
	}
	return nil
}

// findDirectory reads the end record, which must be at the end of the file.
func findDirectory(r io.ReaderAt, size int64) (directory, error) {
	tail := make([]byte, min(size, zipEnd+zipMostComment))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return directory{}, errs.WrapAs(errs.Unavailable, "archive.Read", err)
	}
	i := bytes.LastIndex(tail[:max(0, len(tail)-zipEnd+len(signEnd))], signEnd)
	if i < 0 || i+zipEnd > len(tail) || i+zipEnd+int(binary.LittleEndian.Uint16(tail[i+20:])) != len(tail) {
		return directory{}, errs.New(errs.Malformed, "the zip breaks off before its end record: send the whole zip, in one file")
	}
	end := tail[i:]
	disk, first := binary.LittleEndian.Uint16(end[4:]), binary.LittleEndian.Uint16(end[6:])
	d := directory{
		size: int64(binary.LittleEndian.Uint32(end[12:])),
		at:   int64(binary.LittleEndian.Uint32(end[16:])),
		end:  size - int64(len(tail)) + int64(i),

		entries: uint64(binary.LittleEndian.Uint16(end[10:])),
	}
	// These conditions must be the same as in archive/zip, which then looks for the zip64
	// record.
	if d.entries == 1<<16-1 || d.size == 1<<16-1 || d.at == 1<<32-1 {
		large, err := findLarge(r, d.end)
		if err != nil {
			return d, err
		}
		if large != nil {
			return *large, nil
		}
	}
	if disk != 0 || first != 0 {
		return d, errs.New(errs.Malformed, "the zip is one part of several: pack it as one file")
	}
	return d, nil
}

// findLarge reads the zip64 end record. It returns nil when there is none.
func findLarge(r io.ReaderAt, end int64) (*directory, error) {
	var locator [zipLocator]byte
	if end < zipLocator {
		return nil, nil
	}
	if _, err := r.ReadAt(locator[:], end-zipLocator); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "archive.Read", err)
	}
	if !bytes.HasPrefix(locator[:], signLocator) {
		return nil, nil
	}
	at := int64(binary.LittleEndian.Uint64(locator[8:]))
	var record [zipEnd64]byte
	if at < 0 || at+zipEnd64 > end-zipLocator {
		return nil, errs.New(errs.Malformed, "the zip's table of contents is damaged: pack it again")
	}
	if _, err := r.ReadAt(record[:], at); err != nil {
		return nil, damaged(Zip, "", err)
	}
	if !bytes.HasPrefix(record[:], signEnd64) {
		return nil, errs.New(errs.Malformed, "the zip's table of contents is damaged: pack it again")
	}
	if binary.LittleEndian.Uint32(record[16:]) != 0 || binary.LittleEndian.Uint32(record[20:]) != 0 {
		return nil, errs.New(errs.Malformed, "the zip is one part of several: pack it as one file")
	}
	return &directory{
		size: int64(binary.LittleEndian.Uint64(record[40:])),
		at:   int64(binary.LittleEndian.Uint64(record[48:])),
		end:  at,

		entries: binary.LittleEndian.Uint64(record[32:]),
	}, nil
}
