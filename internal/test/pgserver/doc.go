// Package pgserver runs real PostgreSQL servers for tests. A test process has one that all its tests share, with a
// database for each call of URL; a test that kills, freezes or restarts a server starts its own.
//
// A server is private: it listens on loopback alone, asks for a password that nobody else knows, and keeps its data in
// a temporary folder. Neither outlives the process of the test, however that ends. The databases belong to a role that
// is no superuser and sort text by the rules of English, so that a query that needs the order of bytes and does not say
// so fails.
//
// The programs of PostgreSQL 15 or later are looked for in the folder AGENTD_POSTGRES_BIN, on the PATH and where Debian
// has them; scripts/postgres installs them. Without them a test is skipped, and fails if CI=true.
//
// It knows nothing of agentd.
package pgserver
