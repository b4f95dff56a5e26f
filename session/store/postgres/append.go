package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// Append writes the batch durably before it returns; see store.Store. It may wait for a place in the queue. After an
// error that package store has no name for, the batch may have been written.
func (s *Store) Append(ctx context.Context, b store.Batch) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, err := s.queueAppend(ctx, &b)
	if err == nil {
		err = o.wait()
	}
	return appendError(&b, err)
}

// AppendMany queues all batches before it waits for the first one, so that few transactions write them; see
// store.Store. One that writes a key or shared values waits for an earlier one that does with another writer, so that
// the first of two that write the same key has it, and the last of two values stands.
func (s *Store) AppendMany(ctx context.Context, batches []store.Batch) []error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	batches = slices.Clone(batches)
	ops, errs := make([]*op, len(batches)), make([]error, len(batches))
	seen := make(map[string]bool, len(batches))
	wait := func(i int) {
		if ops[i] != nil && errs[i] == nil {
			errs[i] = ops[i].wait()
		}
		ops[i] = nil
	}
	common := -1 // the last batch that writes what is not its session's
	for i := range batches {
		b := &batches[i]
		if seen[b.SessionID] {
			errs[i] = rules.Malformedf("an earlier batch is of the same session")
			continue
		}
		seen[b.SessionID] = true
		if b.Key != nil || len(b.Shared) > 0 {
			if common >= 0 && s.writerOf(batches[common].SessionID) != s.writerOf(b.SessionID) {
				wait(common)
			}
			common = i
		}
		ops[i], errs[i] = s.queueAppend(ctx, b)
	}
	for i := range batches {
		wait(i)
		errs[i] = appendError(&batches[i], errs[i])
	}
	return errs
}

// queueAppend checks and queues an append. It keeps b, and copies what b shares with the caller. The caller holds mu
// until it has the result or stops waiting.
func (s *Store) queueAppend(ctx context.Context, b *store.Batch) (*op, error) {
	if err := errors.Join(rules.CheckBatch(b), checkTexts(b)); err != nil {
		return nil, err
	}
	usage, err := rules.UsageText(b.Usage)
	if err != nil {
		return nil, err
	}
	if s.closed {
		return nil, errClosed
	}
	if s.only {
		return nil, errReadOnly
	}
	if err := s.alone.check(); err != nil {
		return nil, err
	}
	rules.Own(b)
	o := &op{ctx: ctx, batch: b, usage: usage, size: rules.Size(b), done: make(chan error, 1)}
	if b.Create != nil && b.Epoch > 0 {
		o.owner = s.owner()
	}
	if grouped(b) {
		if before, after, err := turns(b.Records); err == nil { // else the log says which error it is
			if err := o.prepare(before, after); err != nil {
				return nil, err
			}
		}
	}
	return o, s.writerOf(b.SessionID).enqueue(o)
}

// grouped reports whether a batch goes in a group. One that has spent something goes alone if it creates a session or
// writes a key: the place of a statement in a group is that of one row that it locks, see lockOrder.
func grouped(b *store.Batch) bool {
	if len(b.Shared) > 0 || len(b.Rewrites) > 0 || len(b.Notices) > 0 || b.Create != nil && b.Create.MaxOfTenant < 0 {
		return false
	}
	return !spends(b) || b.Create == nil && b.Key == nil
}

// prepare makes the statement that writes the batch in a group; see turns for before and after.
func (o *op) prepare(before, after *string) error {
	b := o.batch
	if b.Create == nil {
		o.plain, o.args = appendText(b, b.Key != nil), appendArgs(b, o.usage, before, after)
	} else {
		args, err := createArgs(b, o.usage, o.owner, before, after)
		if err != nil {
			return err
		}
		o.plain, o.args = createTexts[boolInt(b.Key != nil)], args
	}
	if b.Key != nil {
		o.args = append(o.args, b.Key.Scope, b.Key.Name, b.Key.Content, b.Key.SessionID, b.Key.ID)
	}
	return nil
}

// appendError says which append has failed; err may be nil.
func appendError(b *store.Batch, err error) error {
	if err != nil {
		err = fmt.Errorf("postgres: append to session %q after %d: %w", b.SessionID, b.After, err)
	}
	return err
}

// checkTexts refuses what PostgreSQL takes for no text, before it fails the transaction of others.
func checkTexts(b *store.Batch) error {
	texts := []string{b.SessionID, b.Payer, b.LastTurn, b.LastStatus}
	for i := range b.Records {
		texts = append(texts, b.Records[i].TurnID)
	}
	for i := range b.Rows {
		r := &b.Rows[i]
		texts = append(texts, r.ID, r.TurnID, r.Status)
	}
	if n := b.Create; n != nil {
		texts = append(texts, n.Creator, n.ClientRef, n.Metadata, n.Agent)
		for key, value := range n.Labels {
			texts = append(texts, key, value)
		}
	}
	for i := range b.Notices {
		n := &b.Notices[i]
		texts = append(texts, n.ID, n.Hook, n.Event, n.TurnID, n.Subject)
	}
	if k := b.Key; k != nil {
		texts = append(texts, k.Scope, k.Name, k.Content, k.ID)
	}
	for i := range b.Events {
		e := &b.Events[i]
		texts = append(texts, e.App, e.ID, e.SessionID, e.Branch, e.Author, e.Invocation, e.Metadata)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			return rules.Malformedf("text %.100q has a NUL or is not UTF-8", text)
		}
	}
	return nil
}

// turns returns the turn that must be open before recs, "" for none, and the one that is open afterwards. Both are nil
// if any may be open, and stays so.
func turns(recs []record.Record) (before, after *string, err error) {
	for i := range recs {
		switch recs[i].Kind {
		case record.KindTurnStarted:
			before = new("")
		case record.KindTurnEnded:
			before = new(recs[i].TurnID)
		default:
			continue // no other kind starts or ends a turn
		}
		open, err := rules.TurnAfter(*before, recs)
		return before, &open, err
	}
	return nil, nil, nil
}

// insertRecords inserts records behind a position into the log of h.id. The arguments begin at one of the statement.
const insertRecords = `INSERT INTO records (session_id, seq, epoch, turn_id, kind, time, data)
	SELECT h.id, $2::bigint + u.n, $9::bigint, u.turn_id, u.kind, u.time, u.data FROM h,
	unnest($12::text[], $13::text[], $14::bigint[], $15::bytea[]) WITH ORDINALITY AS u(turn_id, kind, time, data, n)`

// appendHead is the statement of an append without rows, spending and key: the other parts follow. It has %s for a
// further condition.
const appendHead = `WITH h AS (
	UPDATE heads SET last_seq = $3::bigint, open_turn = coalesce($11::text, open_turn), updated_at = $4::bigint,
		usage = $5::text, last_turn = $6::text, last_status = $7::text,
		attempts = CASE $8::bigint WHEN 0 THEN attempts ELSE $8::bigint END, waits = false, epoch = $9::bigint
	WHERE id = $1::text AND last_seq = $2::bigint AND epoch <= $9::bigint
		AND ($10::text IS NULL OR open_turn = $10::text)%s
	RETURNING id
), r AS (` + insertRecords + `)`

// rowConflict keeps what the first write of a row has set for good.
const rowConflict = ` ON CONFLICT (session_id, kind, id) DO UPDATE
	SET turn_id = excluded.turn_id, status = excluded.status, data = excluded.data`

const appendRows = `, e AS (
	INSERT INTO entries (session_id, kind, id, turn_id, seq, created_at, status, data)
	SELECT h.id, u.* FROM h, unnest($16::text[], $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::text[],
		$22::bytea[]) AS u` + rowConflict + `)`

// appendSpent has %d for the number of its first argument.
const appendSpent = `, s AS (
	INSERT INTO spent (tenant, day, tokens, cost)
	SELECT $%d::text, $%d::bigint, $%d::bigint, $%d::bigint FROM h` + spentConflict + `)`

// spentConflict keeps the sum from overflowing: 1 << 53 is rules.MostSpent.
const spentConflict = ` ON CONFLICT (tenant, day) DO UPDATE
	SET tokens = least(spent.tokens + excluded.tokens, 1::bigint << 53),
		cost = least(spent.cost + excluded.cost, 1::bigint << 53)`

// keyFree and insertKey have %d for the number of the first argument of the key. A key that another transaction writes
// meanwhile fails the statement.
const (
	keyFree   = ` AND NOT EXISTS (SELECT FROM keys WHERE scope = $%d::text AND name = $%d::text)`
	insertKey = `, k AS (INSERT INTO keys (scope, name, content, session_id, id)
		SELECT $%d::text, $%d::text, $%d::text, $%d::text, $%d::text FROM h)`
)

// appendTexts are the statements of an append by whether it has rows, has spent something, and writes a key.
var appendTexts = func() (texts [2][2][2]string) {
	for rows := range 2 {
		for spent := range 2 {
			for key := range 2 {
				rest, n, free := "", 16, ""
				if rows == 1 {
					rest, n = appendRows, 23
				}
				if spent == 1 {
					rest, n = rest+fmt.Sprintf(appendSpent, n, n+1, n+2, n+3), n+4
				}
				if key == 1 {
					free = fmt.Sprintf(keyFree, n, n+1)
					rest += fmt.Sprintf(insertKey, n, n+1, n+2, n+3, n+4)
				}
				texts[rows][spent][key] = fmt.Sprintf(appendHead, free) + rest + ` SELECT count(*) FROM h`
			}
		}
	}
	return texts
}()

// appendText returns the statement that writes a batch without Create, Shared and Rewrites, if the log is as the batch
// says, and its key with it or not. It returns how many sessions it has written to.
func appendText(b *store.Batch, key bool) string {
	return appendTexts[boolInt(len(b.Rows) > 0)][boolInt(spends(b))][boolInt(key)]
}

// createHead is the statement that creates a session with its first records, rows and labels, in this order: the count
// of the tenant, the session, the rest. It writes nothing if the session exists, if the tenant has as many as it may,
// or if %s says so; and fails if another transaction creates the session meanwhile.
const createHead = `WITH n AS (
	SELECT $1::text AS id, CASE strpos($1::text, '/') WHEN 0 THEN '' ELSE split_part($1::text, '/', 1) END AS tenant
	WHERE NOT EXISTS (SELECT FROM heads WHERE id = $1::text) AND ($10::text IS NULL OR $10::text = '')%s
), c AS (
	INSERT INTO session_counts (tenant, sessions) SELECT n.tenant, 1 FROM n WHERE n.tenant <> ''
	ON CONFLICT (tenant) DO UPDATE SET sessions = session_counts.sessions + 1
		WHERE $31::bigint = 0 OR session_counts.sessions < $31::bigint
	RETURNING tenant
), h AS (
	INSERT INTO heads (id, created_at, last_seq, open_turn, updated_at, attempts, epoch, usage, last_turn, last_status,
		owner)
	SELECT n.id, $23::bigint, $3::bigint, coalesce($11::text, ''), $4::bigint, $8::bigint, $9::bigint, $5::text,
		$6::text, $7::text, nullif($30::bigint, 0)
	FROM n WHERE n.tenant = '' OR EXISTS (SELECT FROM c) RETURNING id
), s AS (
	INSERT INTO sessions (id, created_at, creator, client_ref, budget, drop_payloads, metadata, agent)
	SELECT h.id, $23::bigint, $24::text, $25::text, $26::text, $27::boolean, $28::text, $29::text FROM h
), l AS (
	INSERT INTO labels (session_id, key, value, created_at)
	SELECT h.id, u.key, u.value, $23::bigint FROM h, unnest($32::text[], $33::text[]) AS u(key, value)
), r AS (` + insertRecords + `)` + appendRows

// createTexts are the statements of an append that creates its session, by whether it writes a key.
var createTexts = [2]string{
	fmt.Sprintf(createHead, "") + ` SELECT count(*) FROM h`,
	fmt.Sprintf(createHead, fmt.Sprintf(keyFree, 34, 35)) + fmt.Sprintf(insertKey, 34, 35, 36, 37, 38) +
		` SELECT count(*) FROM h`,
}

// createArgs are the arguments of createTexts but for those of the key.
func createArgs(b *store.Batch, usage string, owner int64, before, after *string) ([]any, error) {
	n := b.Create
	budget, err := json.Marshal(n.Budget)
	if err != nil {
		return nil, err
	}
	args := headArgs(b, usage, before, after)
	args = append(args, rowArgs(b.Rows)...)
	keys := slices.Sorted(maps.Keys(n.Labels))
	keys = slices.DeleteFunc(keys, func(key string) bool { return n.Labels[key] == "" })
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = n.Labels[key]
	}
	return append(args, n.CreatedAt.UnixMicro(), n.Creator, n.ClientRef, string(budget), n.DropToolPayloads, n.Metadata,
		n.Agent, owner, n.MaxOfTenant, keys, values), nil
}

// headArgs are the arguments that all statements begin with.
func headArgs(b *store.Batch, usage string, before, after *string) []any {
	last := &b.Records[len(b.Records)-1]
	args := []any{
		b.SessionID, b.After, last.Seq, last.Time.UnixMicro(), usage, b.LastTurn, b.LastStatus, b.Attempts, b.Epoch,
		before, after,
	}
	return append(args, recordArgs(b.Records)...)
}

// appendArgs are the arguments of appendTexts but for those of the key.
func appendArgs(b *store.Batch, usage string, before, after *string) []any {
	args := headArgs(b, usage, before, after)
	if len(b.Rows) > 0 {
		args = append(args, rowArgs(b.Rows)...)
	}
	if spends(b) {
		tokens, cost := min(b.Spent.Tokens, rules.MostSpent), int64(min(b.Spent.Cost, rules.MostSpent))
		args = append(args, b.Payer, b.PaidOn, tokens, cost)
	}
	return args
}

// recordArgs are the columns of records.
func recordArgs(recs []record.Record) []any {
	turn, kind := make([]string, len(recs)), make([]string, len(recs))
	at, data := make([]int64, len(recs)), make([][]byte, len(recs))
	for i := range recs {
		r := &recs[i]
		turn[i], kind[i], at[i], data[i] = r.TurnID, string(r.Kind), r.Time.UnixMicro(), blob(r.Data)
	}
	return []any{turn, kind, at, data}
}

// rowArgs are the columns of rows. Of two rows of a kind and an id one is written: a statement cannot write a row
// twice.
func rowArgs(rows []store.Row) []any {
	type name struct {
		kind store.RowKind
		id   string
	}
	place := make(map[name]int, len(rows))
	var kind, id, turn, status []string
	var seq, created []int64
	var data [][]byte
	for i := range rows {
		r := &rows[i]
		if p, twice := place[name{r.Kind, r.ID}]; twice {
			turn[p], status[p], data[p] = r.TurnID, r.Status, blob(r.Data)
			continue
		}
		place[name{r.Kind, r.ID}] = len(id)
		kind, id = append(kind, string(r.Kind)), append(id, r.ID)
		turn, status = append(turn, r.TurnID), append(status, r.Status)
		seq, created, data = append(seq, r.Seq), append(created, r.CreatedAt.UnixMicro()), append(data, blob(r.Data))
	}
	return []any{kind, id, turn, seq, created, status, data}
}

// blob returns b, or an empty blob where PostgreSQL would see NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// append writes b, whose Usage is usage.
func (t *tx) append(b *store.Batch, usage string) error {
	s, err := t.lock(b.SessionID)
	switch {
	case err != nil:
		return err
	case s == nil && b.Create == nil:
		return store.ErrNoSession
	case s == nil:
		s = new(state)
	case b.Epoch < s.epoch:
		return rules.Fenced(b, s.epoch)
	case b.Create != nil:
		err := t.repeated(b, s.last)
		if errors.Is(err, store.ErrConflict) {
			err = answered{fmt.Errorf("%w: its log is another", store.ErrSessionExists)}
		}
		return err
	case s.last != b.After:
		return t.repeated(b, s.last)
	}
	turn, err := rules.TurnAfter(s.turn, b.Records)
	if err == nil {
		err = t.keyIsFree(b.Key)
	}
	if err == nil {
		err = t.rewritable(b)
	}
	if err == nil && b.Create != nil {
		err = t.insert(b.Create)
	}
	if err == nil && b.Create != nil && t.owner != 0 {
		err = t.exec(`UPDATE heads SET owner = $2 WHERE id = $1`, b.SessionID, t.owner)
	}
	if err != nil {
		return err
	}
	n := 0
	err = t.QueryRow(t.ctx, appendText(b, false), appendArgs(b, usage, &s.turn, &turn)...).Scan(&n)
	switch {
	case err != nil:
		return err
	case n != 1:
		return errors.New("the row of the session changed while it was locked")
	}
	rest := &pgx.Batch{}
	for i := range b.Rewrites {
		r := &b.Rewrites[i]
		rest.Queue(`UPDATE records SET data = $3 WHERE session_id = $1 AND seq = $2`, b.SessionID, r.Seq, blob(r.Data))
	}
	share(rest, b.Shared)
	notify(rest, b)
	if err := t.all(rest); err != nil {
		return err
	}
	if err := t.key(b.Key); err != nil {
		return err
	}
	events := &pgx.Batch{}
	queueEvents(events, b)
	return t.all(events)
}

// rewritable refuses a rewrite of a record that the log does not have.
func (t *tx) rewritable(b *store.Batch) error {
	for i := range b.Rewrites {
		r := &b.Rewrites[i]
		old, err := t.records(b.SessionID, r.Seq, 1)
		switch {
		case err != nil:
			return err
		case len(old) == 0 || !rules.SameButData(&old[0], r):
			return rules.Malformedf("record %d to rewrite is another", r.Seq)
		}
	}
	return nil
}

// records returns at most n records of a session from a sequence number on.
func (t *tx) records(id string, from int64, n int) ([]record.Record, error) {
	rows, err := t.Query(t.ctx, logQuery, id, from-1, n, store.ReadBytes)
	return collect(rows, err, scanRecord)
}

// repeated decides on an append to a log that does not end at b.After. It is a repeat if the log holds the same records
// and the key names what they created. Nothing else is compared, since later appends may have replaced it.
func (t *tx) repeated(b *store.Batch, last int64) error {
	if b.After+int64(len(b.Records)) > last {
		return fmt.Errorf("%w: it ends at %d", store.ErrConflict, last)
	}
	for recs := b.Records; len(recs) > 0; {
		olds, err := t.records(b.SessionID, recs[0].Seq, len(recs))
		if err != nil {
			return err
		}
		if len(olds) == 0 || olds[0].Seq != recs[0].Seq { // it was purged
			return fmt.Errorf("%w: it ends at %d and its record %d is gone", store.ErrConflict, last, recs[0].Seq)
		}
		for i := range olds {
			if !rules.SameButData(&olds[i], &recs[i]) || !bytes.Equal(olds[i].Data, recs[i].Data) {
				return fmt.Errorf("%w: it ends at %d and its record %d is another",
					store.ErrConflict, last, recs[i].Seq)
			}
		}
		recs = recs[len(olds):]
	}
	if b.Key != nil {
		switch k, err := t.keyOf(b.Key); {
		case err != nil:
			return err
		case k == nil:
			return fmt.Errorf("%w: its records were not appended with key %q", store.ErrConflict, b.Key.Name)
		case *k != *b.Key:
			return taken(k)
		}
	}
	return t.confirm()
}

// scanRecord scans a row of logQuery.
func scanRecord(row pgx.CollectableRow) (r record.Record, err error) {
	var at int64
	err = row.Scan(&r.Seq, &r.TurnID, &r.Kind, &at, &r.Data)
	r.Time = time.UnixMicro(at).UTC()
	return r, err
}
