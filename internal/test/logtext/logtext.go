// Package logtext is for fuzzers of what reads the logs of sessions: logs as text, and edits of them. It is a part of
// agentd, not an API.
package logtext

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/record"
)

// Most is how many records a log of Parse has at most.
const Most = 100

// Format returns a log as text: a line for each record, of its turn, its kind and its data.
func Format(recs []record.Record) []byte {
	var b bytes.Buffer
	for _, rec := range recs {
		fmt.Fprintf(&b, "%s\t%s\t%s\n", rec.TurnID, rec.Kind, rec.Data)
	}
	return b.Bytes()
}

// Parse reads any text as a log, of which it takes the first records, and edits it: each three bytes of edits are what
// to do, a record, and another one. The numbers and times of the records are in order, as a
// store has them.
func Parse(text, edits []byte) []record.Record {
	var recs []record.Record
	for line := range bytes.Lines(text) {
		if len(recs) == Most {
			break
		}
		turn, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\t")
		kind, data, _ := strings.Cut(rest, "\t")
		recs = append(recs, record.Record{
			TurnID: strings.ToValidUTF8(strings.ReplaceAll(turn, "\x00", ""), ""),
			Kind:   record.Kind(kind), Data: []byte(data),
		})
	}
	for edit := range slices.Chunk(edits[:min(len(edits), 3*Most)], 3) {
		if len(edit) == 3 && len(recs) > 0 {
			recs = edited(recs, edit[0], int(edit[1])%len(recs), int(edit[2])%len(recs))
		}
	}
	recs = recs[:min(len(recs), Most)]
	for i := range recs {
		recs[i].Seq = int64(i + 1)
		recs[i].Time = time.Unix(1_700_000_000, int64(i)*1_000_000).UTC()
	}
	return recs
}

// edited returns a log in which one record was changed, with the help of another one.
func edited(recs []record.Record, what byte, i, j int) []record.Record {
	switch what % 7 {
	case 0:
		recs[i], recs[j] = recs[j], recs[i]
	case 1:
		recs = slices.Delete(recs, i, i+1)
	case 2:
		recs = slices.Insert(recs, i, recs[j])
	case 3:
		recs = recs[:i]
	case 4:
		recs[i].TurnID = recs[j].TurnID
	case 5:
		recs[i].Kind = recs[j].Kind
	case 6:
		recs[i].Data = recs[j].Data
	}
	return recs
}

// All yields the records of a log.
func All(recs []record.Record) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for _, rec := range recs {
			if !yield(rec, nil) {
				return
			}
		}
	}
}
