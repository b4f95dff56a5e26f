package sqlite

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/apzuk3/agentd/session/record"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumOf returns the checksum of a record of a session. SQLite has none for what is in the database file:
// with it, neither a flipped bit nor an index entry that leads to another session's record passes for what
// was appended.
func sumOf(id string, r *record.Record) int64 { return sumOfID(id) ^ sumOfRecord(r) }

// sumOfID is the part of the sum that a fork changes.
func sumOfID(id string) int64 { return int64(crc32.Checksum([]byte(id), castagnoli)) }

func sumOfRecord(r *record.Record) int64 {
	head := make([]byte, 0, 128)
	for _, n := range []int64{r.Seq, r.Time.UnixMicro(), int64(len(r.TurnID)), int64(len(r.Kind))} {
		head = binary.LittleEndian.AppendUint64(head, uint64(n))
	}
	head = append(append(head, r.TurnID...), r.Kind...)
	return int64(crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, r.Data))
}

// wrongSum is the error of a record that is not what was appended. It is no error of SQLite, so that it
// becomes store.ErrDamaged.
func wrongSum(id string, r *record.Record, sum int64) error {
	return fmt.Errorf("record %d of session %q has checksum %08x, it was written with %08x",
		r.Seq, id, sumOf(id, r), sum)
}
