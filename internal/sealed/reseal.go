package sealed

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Recoder is a database whose values can be changed to another form that says the same; see sqlite.Store.Recode.
type Recoder interface {
	DB
	// Erase is Transact for an f that removes what must not be found in the files of the database either.
	Erase(ctx context.Context, f func(context.Context, *sql.Conn) error) error
	Recode(ctx context.Context, c interface {
		Record(ctx context.Context, sessionID string, r *record.Record) error
		Row(ctx context.Context, r *store.Row) error
		Shared(ctx context.Context, v *store.SharedValue) error
		Key(ctx context.Context, k *store.Key) error
		Info(ctx context.Context, i *store.Info) error
		Failed(err error) error
	}) (changed int64, err error)
}

// Sealing is what a server was asked to seal again: all values.
type Sealing struct {
	ID int64
	// Ended is zero until it is over. Result says what has happened then.
	Ended  time.Time
	Result string

	key uint32 // the first of the data keys that may have sealed values when it is over; 0 until that is known
}

// Sealings are those of a database.
type Sealings struct{ DB DB }

// Add asks for a sealing. It fails if the database has no data keys: no server has sealed anything in it.
func (s Sealings) Add(ctx context.Context) (id int64, err error) {
	err = s.DB.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		var keys int
		if err := c.QueryRowContext(ctx, `SELECT count(*) FROM data_keys`).Scan(&keys); err != nil {
			return err
		}
		if keys == 0 {
			return errors.New("the server has no encryption keys: " +
				"start it with --encryption-keys or --encryption-command")
		}
		return c.QueryRowContext(ctx, `INSERT INTO sealings (data_key, asked_at, ended_at, result)
			VALUES (0, $1, 0, '') RETURNING id`, time.Now().UnixNano()).Scan(&id)
	})
	return id, within(err, "ask for all values to be sealed")
}

// Get returns a sealing.
func (s Sealings) Get(ctx context.Context, id int64) (Sealing, error) {
	return s.one(ctx, `SELECT id, data_key, ended_at, result FROM sealings WHERE id = $1`, id)
}

// Open returns the sealing that is to be done next; its ID is 0 if there is none.
func (s Sealings) Open(ctx context.Context) (Sealing, error) {
	x, err := s.one(ctx, `SELECT id, data_key, ended_at, result FROM sealings
		WHERE ended_at = $1 ORDER BY id LIMIT 1`, 0)
	if errors.Is(err, sql.ErrNoRows) {
		return Sealing{}, nil
	}
	return x, err
}

func (s Sealings) one(ctx context.Context, query string, arg int64) (x Sealing, err error) {
	var ended int64
	err = s.DB.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, query, arg).Scan(&x.ID, &x.key, &ended, &x.Result)
	})
	if ended != 0 {
		x.Ended = time.Unix(0, ended)
	}
	return x, within(err, "look for what is to be sealed")
}

func (s Sealings) set(ctx context.Context, query string, args ...any) error {
	err := s.DB.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, query, args...)
		return err
	})
	return within(err, "note what was sealed")
}

// Seal does a sealing: under a new data key it seals what is clear and what older ones have sealed, in the store and in
// its ledger, and removes those. It may be interrupted and done again, and then leaves what it has sealed. Values that
// do not open stay, and with them the old data keys.
func (r *Ring) Seal(ctx context.Context, db Recoder, beside LedgerRecoder, x Sealing) (result string, err error) {
	list := Sealings{db}
	if err := r.Follow(ctx); err != nil {
		return "", err
	}
	if x.key == 0 {
		if x.key, err = r.replace(ctx); err != nil {
			return "", err
		}
		if err := list.set(ctx, `UPDATE sealings SET data_key = $1 WHERE id = $2`, x.key, x.ID); err != nil {
			return "", err
		}
	}
	if err := r.await(ctx, x.key); err != nil {
		return "", err
	}
	c := &resealing{ring: r, first: x.key}
	changed, err := db.Recode(ctx, c)
	if err != nil {
		return "", err
	}
	n, err := beside(ctx, c)
	if err != nil {
		return "", err
	}
	changed += n
	result = fmt.Sprintf("sealed %d values", changed)
	if c.failed == 0 {
		if err := r.await(ctx, x.key); err != nil {
			return "", err
		}
		n, err := r.table.removeBefore(ctx, x.key)
		if err != nil {
			return "", err
		}
		result += fmt.Sprintf(", removed %d old data keys", n)
	} else {
		result += fmt.Sprintf("; %d values are damaged and were left, with the old data keys: see agentd check. "+
			"The first is: %v", c.failed, c.why)
	}
	return result, list.set(ctx, `UPDATE sealings SET ended_at = $1, result = $2 WHERE id = $3`,
		time.Now().UnixNano(), result, x.ID)
}

// await waits until nobody seals with older keys.
func (r *Ring) await(ctx context.Context, key uint32) error {
	if r.peers == nil {
		return nil
	}
	if err := r.say(ctx, key); err != nil {
		return err
	}
	return r.peers.Await(ctx, key)
}

// replace makes a new current data key, and waits for what others seal meanwhile to be written.
func (r *Ring) replace(ctx context.Context) (id uint32, err error) {
	r.using.Lock()
	defer r.using.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.add(ctx, r.block); err != nil { // behind each write that has begun and that nobody waits for
		return 0, err
	}
	return r.current.id, nil
}

// resealing changes values for Recode.
type resealing struct {
	ring   *Ring
	first  uint32 // of the data keys whose values stay
	failed int    // values that do not open
	why    error  // the error of the first one of them
}

// again opens a value and returns what seals it; nil if it stays as it is.
func (c *resealing) again(ctx context.Context, place, value []byte) (open []byte, key *dataKey, err error) {
	if id, sealed := keyOf(value); sealed && id >= c.first {
		return nil, nil, nil
	}
	if open, err = c.ring.open(ctx, place, value); err != nil {
		return nil, nil, err
	}
	key, err = c.ring.take(ctx, 1)
	return open, key, err
}

// Record implements Recoder's argument, as do the others.
func (c *resealing) Record(ctx context.Context, sessionID string, r *record.Record) error {
	at := recordPlace(sessionID, r)
	data, key, err := c.again(ctx, at, r.Data)
	if key != nil {
		r.Data = key.seal(at, data)
	}
	return within(err, "record %d of session %q", r.Seq, sessionID)
}

func (c *resealing) Row(ctx context.Context, r *store.Row) error {
	at := rowPlace(r)
	data, key, err := c.again(ctx, at, r.Data)
	if key != nil {
		r.Data = key.seal(at, data)
	}
	return within(err, "row %q of kind %q of session %q", r.ID, r.Kind, r.SessionID)
}

func (c *resealing) Shared(ctx context.Context, v *store.SharedValue) error {
	at, value := sharedPlace(v.Scope, v.Key), []byte(v.Value)
	if sealed, ok := fromJSON(v.Value); ok {
		value = sealed
	}
	data, key, err := c.again(ctx, at, value)
	if key != nil {
		v.Value = key.sealJSON(at, json.RawMessage(data))
	}
	return within(err, "shared value %q of %q", v.Key, v.Scope)
}

func (c *resealing) Key(ctx context.Context, k *store.Key) error {
	at, content := keyPlace(k), []byte(k.Content)
	if sealed, ok := fromText(k.Content); ok {
		content = sealed
	}
	data, key, err := c.again(ctx, at, content)
	if key != nil {
		k.Content = key.sealText(at, string(data))
	}
	return within(err, "key %q of %q", k.Name, k.Scope)
}

func (c *resealing) Info(ctx context.Context, i *store.Info) error {
	at, text := metadataPlace(i.ID), []byte(i.Metadata)
	if sealed, ok := fromText(i.Metadata); ok {
		text = sealed
	}
	data, key, err := c.again(ctx, at, text)
	if key != nil {
		i.Metadata = key.sealText(at, string(data))
	}
	return within(err, "metadata of session %q", i.ID)
}

func (c *resealing) Failed(err error) error {
	if !errors.Is(err, store.ErrDamaged) {
		return err
	}
	if c.failed++; c.failed == 1 {
		c.why = err
	}
	return nil
}
