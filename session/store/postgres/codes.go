package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/apzuk3/agentd/session/store"
)

// SQLSTATEs that mean something to this package.
const (
	diskFull         = "53100"
	badCharacter     = "22021" // NUL, or no UTF-8
	badTranslation   = "22P05"
	tooLarge         = "54000" // an id that no index takes
	tooLargeString   = "54001"
	damagedData      = "XX001"
	damagedIndex     = "XX002"
	deadlock         = "40P01"
	notSerializable  = "40001"
	notUnique        = "23505" // another transaction has made a row meanwhile
	noSuchStatement  = "26000" // a pooler gave the transaction another connection
	warningCode      = "01000"
	noSuchStatements = "a pooler without prepared statements? see default_query_exec_mode in docs/postgres.md"
)

// codeOf returns the SQLSTATE of an error of the server, "" for another error.
func codeOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// undone reports whether an error means that the transaction is undone. An error that ends the connection does not: it
// may come behind the commit.
func undone(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && severity(e) == "ERROR"
}

func severity(e *pgconn.PgError) string {
	if e.SeverityUnlocalized != "" {
		return e.SeverityUnlocalized
	}
	return e.Severity
}

// passes reports whether the same transaction may succeed at once.
func passes(err error) bool {
	code := codeOf(err)
	return code == deadlock || code == notSerializable || code == notUnique
}

// named gives an error of the server the name that package store has for it. The error of a context that has ended is
// that of the context.
func named(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch code := codeOf(err); code {
	case "":
		return err
	case diskFull:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case badCharacter, badTranslation, tooLarge, tooLargeString:
		return fmt.Errorf("%w: %w", store.ErrMalformed, err)
	case damagedData, damagedIndex:
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	case noSuchStatement:
		return fmt.Errorf("%w (%s)", err, noSuchStatements)
	default:
		return err
	}
}
