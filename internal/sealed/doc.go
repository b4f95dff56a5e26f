// Package sealed is a part of agentd, not an API: it encrypts what sessions say before a store writes it.
//
// [Store] is a store.Store over another one. It seals what is only carried: the data of records and rows, shared
// values, the metadata of sessions, and the digests of idempotency keys. [Ledger] does the same for what agents say
// that callers have the server keep, and for objects of faces. What lists, lookups and checks of a store compare stays
// clear: ids, kinds, statuses, times, labels, references, keys of shared values, names of idempotency keys, numbers.
//
// # Values
//
// A value is sealed with AES-256-GCM and a random nonce, under a data key that it names. The additional data is the
// place of the value: for a record the session, its sequence number, kind, turn and time; so a value that was moved
// to another place, or changed, does not open. A fork copies records, which are sealed anew for their new place. A
// value that was never sealed opens as it is, so a database may have both.
//
// # Keys
//
// A data key is 32 random bytes. It is in the database, wrapped by a master key, which is in a file or with a program
// (a KMS): see [Config]. It is unwrapped once and stays in memory. With random nonces one key may seal 2^32 values
// (NIST SP 800-38D, 8.3); a [Ring] makes a new one after half of that. It counts in blocks that it notes in the
// database before it uses them, so that a restart needs no new key.
//
// # What it does not see
//
// Whoever can write to the database can remove values, put back an older one in its own place, or put a clear one
// in the place of a sealed one.
//
// It must not know what a value says, nor which database it is in. It imports packages store, record and ledger.
package sealed
