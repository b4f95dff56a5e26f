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

// Limits of a journal. Results in the file of a program that runs are never removed by
// another one; of all others the oldest files go first.
const (
	journalSegment = 4 << 20            // bytes after which a program begins another file
	journalBytes   = 64 << 20           // of all files together that no program holds
	journalFiles   = 1024               // files that no program holds
	journalAge     = 7 * 24 * time.Hour // since a file was last written
)

const (
	journalMagic = "agentdj1"
	// journalSuffix is of files that the program which writes them holds locked.
	journalSuffix = ".journal"
	// earlierSuffix is of files that earlier versions write without a lock. They are read,
	// and removed when they are old.
	earlierSuffix = ".answers"
	journalHeader = 8 // of a record: length and CRC-32C of what follows
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journal keeps results in append-only files of one directory. Each program appends to
// one file, which it holds locked; the file that an ended program has left is used again.
// A file that ends in the middle of a record counts up to there. A nil
// journal keeps nothing.
type journal struct {
	dir string

	mu    sync.Mutex // protects the fields below; held while the disk works
	ready bool       // the files have been read
	index map[callKey]place
	own   *os.File // locked, and closed with the process; nil while it has none
	size  int64    // of own, up to the end of its last record
}

// segment is a file of the journal as it was found.
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
	if err := j.pruneLocked(time.Now()); err != nil {
		return err
	}
	files, err := j.list()
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		j.readLocked(file.path, data)
	}
	j.ready = true
	return nil
}

// list returns the files that there are, the oldest first.
func (j *journal) list() ([]segment, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	var files []segment
	for _, entry := range entries {
		if ext := filepath.Ext(entry.Name()); ext != journalSuffix && ext != earlierSuffix {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process has just removed it
		}
		if err != nil {
			return nil, err
		}
		files = append(files, segment{
			path:    filepath.Join(j.dir, entry.Name()),
			size:    info.Size(),
			written: info.ModTime(),
		})
	}
	slices.SortFunc(files, func(a, b segment) int { return a.written.Compare(b.written) })
	return files, nil
}

// readLocked takes the records of a file into the index, and returns where the last
// whole one ends; 0 if it is no file of a journal.
func (j *journal) readLocked(path string, data []byte) int64 {
	if len(data) < len(journalMagic) || string(data[:len(journalMagic)]) != journalMagic {
		return 0
	}
	offset := int64(len(journalMagic))
	for {
		msg, n := decodeRecord(data[offset:])
		if msg == nil {
			return offset
		}
		key := callKey{session: msg.GetSessionId(), call: msg.GetToolCallId()}
		j.index[key] = place{path: path, offset: offset, length: n}
		offset += int64(n)
	}
}

// has reports whether the journal holds a result.
func (j *journal) has(key callKey) bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.index[key]
	return ok
}

// find returns the stored result of a call, or nil. One that can no
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

// append stores a result. It is on disk when append returns nil.
func (j *journal) append(key callKey, msg *agentdv1.RunRequest_ToolCallResponse) error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appendLocked(key, msg)
}

func (j *journal) appendLocked(key callKey, msg *agentdv1.RunRequest_ToolCallResponse) error {
	record, err := encodeRecord(msg)
	if err != nil {
		return err
	}
	if !j.holdsLocked() || j.size >= journalSegment {
		if err := j.beginLocked(); err != nil {
			return err
		}
	}
	_, err = j.own.WriteAt(record, j.size)
	if err == nil {
		err = j.own.Sync()
	}
	if err != nil { // what the file now ends with is not known: leave it as it is
		err = errors.Join(err, j.own.Close())
		j.own = nil
		return err
	}
	j.index[key] = place{path: j.own.Name(), offset: j.size, length: len(record)}
	j.size += int64(len(record))
	return nil
}

// begunPrefix stands before the id of a call in the record that says that the call has begun. Ids of calls do not
// begin so.
const begunPrefix = "\x00begun "

// begin stores that a call has begun. It reports false if that is stored already, by this process or an earlier one.
func (j *journal) begin(key callKey) (first bool, err error) {
	if j == nil {
		return true, nil
	}
	begun := callKey{key.session, begunPrefix + key.call}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.index[begun]; ok {
		return false, nil
	}
	msg := &agentdv1.RunRequest_ToolCallResponse{SessionId: begun.session, ToolCallId: begun.call}
	return true, j.appendLocked(begun, msg)
}

// holdsLocked reports whether there is a file of this program, and still under its name.
func (j *journal) holdsLocked() bool {
	if j.own == nil {
		return false
	}
	if named(j.own) {
		return true
	}
	_ = j.own.Close()
	j.own = nil
	return false
}

// named reports whether an open file is the one that has its name.
func named(file *os.File) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(file.Name())
	return err == nil && os.SameFile(held, there)
}

// beginLocked takes over the newest file that an ended program has left and that has room,
// or makes one. Its former file is left to the limits.
func (j *journal) beginLocked() error {
	if j.own != nil {
		err := j.own.Close()
		j.own = nil
		if err != nil {
			return err
		}
	}
	if err := j.pruneLocked(time.Now()); err != nil {
		return err
	}
	files, err := j.list()
	if err != nil {
		return err
	}
	for _, file := range slices.Backward(files) {
		if filepath.Ext(file.path) == journalSuffix && file.size < journalSegment && j.takeLocked(file.path) {
			return nil
		}
	}
	return j.makeLocked()
}

// takeLocked continues a file, unless another program holds it or it cannot be continued.
func (j *journal) takeLocked(path string) bool {
	file, err := lockFile(path)
	if file == nil || err != nil {
		return false
	}
	data, err := os.ReadFile(path)
	if err == nil {
		end := j.readLocked(path, data)
		if end > 0 && end < journalSegment && named(file) && file.Truncate(end) == nil {
			j.own, j.size = file, end
			return true
		}
	}
	_ = file.Close()
	return false
}

// makeLocked makes a file.
func (j *journal) makeLocked() error {
	for {
		made, err := os.CreateTemp(j.dir, "*"+journalSuffix) // nobody else has this name; mode 0600
		if err != nil {
			return err
		}
		_, err = made.WriteString(journalMagic)
		if err := finishFile(made, err); err != nil {
			return err
		}
		file, err := lockFile(made.Name())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if file == nil { // another program was faster
			continue
		}
		if info, err := file.Stat(); err != nil || info.Size() != int64(len(journalMagic)) || !named(file) {
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
			continue
		}
		if err := syncDir(j.dir); err != nil { // the name is durable too
			return errors.Join(err, file.Close())
		}
		j.own, j.size = file, int64(len(journalMagic))
		return nil
	}
}

// finishFile makes a file durable, unless err says that it is not worth it, and
// closes it.
func finishFile(file *os.File, err error) error {
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// pruneLocked removes what the limits do not allow: old files, and the oldest beyond so
// many files or bytes. It spares what a program holds.
func (j *journal) pruneLocked(now time.Time) error {
	files, err := j.list()
	if err != nil {
		return err
	}
	var total int64
	left := 0
	for _, file := range files {
		total += file.size
		left++
	}
	for _, file := range files {
		if now.Sub(file.written) <= journalAge && total <= journalBytes-journalSegment && left < journalFiles {
			break
		}
		gone, err := removeUnheld(file)
		if err != nil {
			return err
		}
		total -= file.size // of no account either way: the limits are of files that nobody holds
		left--
		if !gone {
			continue
		}
		for key, at := range j.index {
			if at.path == file.path {
				delete(j.index, key)
			}
		}
	}
	return nil
}

// removeUnheld removes a file unless a program holds it or has written it since it was
// listed. Of files of earlier versions, which are never held, only the time tells.
func removeUnheld(file segment) (gone bool, err error) {
	held, err := lockFile(file.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	case held == nil:
		return false, nil
	}
	info, err := held.Stat()
	if err != nil || !named(held) || info.Size() != file.size || !info.ModTime().Equal(file.written) {
		return false, errors.Join(err, held.Close())
	}
	if err := removeLocked(held); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
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
