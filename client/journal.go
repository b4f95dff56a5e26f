package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Limits of a journal.
const (
	journalSegment = 4 << 20            // bytes after which a new file begins
	journalBytes   = 64 << 20           // of all files together
	journalFiles   = 64                 // files
	journalAge     = 7 * 24 * time.Hour // since a file was last written
)

const (
	journalMagic  = "agentdj1"
	journalSuffix = ".answers"
	journalHeader = 8 // of a record: length and CRC-32C of what follows
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journal keeps answers in append-only files of one directory. Each process
// writes files of its own.
// A file that ends in the middle of a record counts up to there. A nil
// journal keeps nothing.
type journal struct {
	dir string

	mu    sync.Mutex // protects the fields below; held while the disk works
	ready bool       // the files have been read
	index map[callKey]place
	files []segment // oldest first; the last one is own, if that is set
	own   string    // path of the last file, "" while this process has none
	size  int64     // of own
}

// segment is a file of the journal.
type segment struct {
	path    string
	size    int64
	written time.Time
}

// place is where a record is.
type place struct {
	path   string
	offset int64
	length int
}

func newJournal(dir string) *journal {
	return &journal{dir: dir, index: make(map[callKey]place)}
}

// open reads the files, once.
func (j *journal) open() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ready {
		return nil
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	j.files = nil
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != journalSuffix {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has just removed it
		}
		if err != nil {
			return err
		}
		j.files = append(j.files, segment{path: filepath.Join(j.dir, entry.Name()), size: info.Size(), written: info.ModTime()})
	}
	slices.SortFunc(j.files, func(a, b segment) int { return a.written.Compare(b.written) })
	if err := j.pruneLocked(time.Now()); err != nil {
		return err
	}
	for _, file := range j.files {
		data, err := os.ReadFile(file.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		j.readLocked(file.path, data)
	}
	j.ready = true
	return nil
}

// readLocked takes the records of a file into the index.
func (j *journal) readLocked(path string, data []byte) {
	if len(data) < len(journalMagic) || string(data[:len(journalMagic)]) != journalMagic {
		return
	}
	offset := int64(len(journalMagic))
	for {
		msg, n := decodeRecord(data[offset:])
		if msg == nil {
			return
		}
		j.index[callKey{session: msg.GetSessionId(), call: msg.GetToolCallId()}] = place{path: path, offset: offset, length: n}
		offset += int64(n)
	}
}

// has tells whether an answer is kept.
func (j *journal) has(key callKey) bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.index[key]
	return ok
}

// find returns the answer that is kept for a call, or nil. One that can no
// longer be read is forgotten.
func (j *journal) find(key callKey) *agentdv1.RunRequest_ToolCallResponse {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	at, ok := j.index[key]
	if !ok {
		return nil
	}
	msg, err := at.read()
	if err != nil || msg.GetSessionId() != key.session || msg.GetToolCallId() != key.call {
		delete(j.index, key)
		return nil
	}
	return msg
}

func (p place) read() (*agentdv1.RunRequest_ToolCallResponse, error) {
	file, err := os.Open(p.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data := make([]byte, p.length)
	if _, err := file.ReadAt(data, p.offset); err != nil {
		return nil, err
	}
	msg, _ := decodeRecord(data)
	if msg == nil {
		return nil, fmt.Errorf("%s holds no record at %d", p.path, p.offset)
	}
	return msg, nil
}

// append keeps an answer. It is on disk when append returns nil.
func (j *journal) append(key callKey, msg *agentdv1.RunRequest_ToolCallResponse) error {
	if j == nil {
		return nil
	}
	record, err := encodeRecord(msg)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.own == "" || j.size >= journalSegment {
		if err := j.beginLocked(); err != nil {
			return err
		}
	}
	err = j.writeLocked(record)
	if errors.Is(err, fs.ErrNotExist) { // another process has removed it
		if err = j.beginLocked(); err == nil {
			err = j.writeLocked(record)
		}
	}
	if err != nil {
		// What the file now ends with is not known: leave it as it is.
		j.own = ""
		return err
	}
	j.index[key] = place{path: j.own, offset: j.size, length: len(record)}
	j.size += int64(len(record))
	last := &j.files[len(j.files)-1]
	last.size, last.written = j.size, time.Now()
	return nil
}

func (j *journal) writeLocked(record []byte) error {
	file, err := os.OpenFile(j.own, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(record, j.size)
	return finishFile(file, err)
}

// beginLocked begins a file and makes room for it.
func (j *journal) beginLocked() error {
	if err := j.pruneLocked(time.Now()); err != nil {
		return err
	}
	file, err := os.CreateTemp(j.dir, "*"+journalSuffix) // nobody else has this name; mode 0600
	if err != nil {
		return err
	}
	_, err = file.WriteString(journalMagic)
	if err := finishFile(file, err); err != nil {
		return err
	}
	dir, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	if err := finishFile(dir, nil); err != nil { // the name is durable too
		return err
	}
	j.own, j.size = file.Name(), int64(len(journalMagic))
	j.files = append(j.files, segment{path: j.own, size: j.size, written: time.Now()})
	return nil
}

// finishFile makes a file durable, unless err says that it is not worth it, and
// closes it.
func finishFile(file *os.File, err error) error {
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// pruneLocked removes the oldest files until there is room for another one.
func (j *journal) pruneLocked(now time.Time) error {
	var total int64
	for _, file := range j.files {
		total += file.size
	}
	gone := 0
	for _, file := range j.files {
		if now.Sub(file.written) <= journalAge && total <= journalBytes-journalSegment && len(j.files)-gone < journalFiles {
			break
		}
		if err := os.Remove(file.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for key, at := range j.index {
			if at.path == file.path {
				delete(j.index, key)
			}
		}
		total -= file.size
		gone++
	}
	j.files = slices.Delete(j.files, 0, gone)
	return nil
}

// encodeRecord returns a record: length, checksum, message.
func encodeRecord(msg *agentdv1.RunRequest_ToolCallResponse) ([]byte, error) {
	record, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, journalHeader), msg)
	if err != nil {
		return nil, err
	}
	body := record[journalHeader:]
	binary.LittleEndian.PutUint32(record, uint32(len(body)))
	binary.LittleEndian.PutUint32(record[4:], crc32.Checksum(body, castagnoli))
	return record, nil
}

// decodeRecord returns the record at the beginning of data and its length; nil
// where there is none.
func decodeRecord(data []byte) (*agentdv1.RunRequest_ToolCallResponse, int) {
	if len(data) < journalHeader {
		return nil, 0
	}
	length := int64(binary.LittleEndian.Uint32(data))
	if length > int64(len(data)-journalHeader) {
		return nil, 0
	}
	body := data[journalHeader : journalHeader+length]
	msg := new(agentdv1.RunRequest_ToolCallResponse)
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(data[4:]) || proto.Unmarshal(body, msg) != nil {
		return nil, 0
	}
	return msg, journalHeader + int(length)
}
