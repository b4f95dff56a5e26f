// Package storetest defines what a store.Store does: it is the suite that
// every implementation runs in its own tests, and whose passing is the contract.
//
// It knows no implementation and asks nothing but what the interface can tell.
// Ids, turn ids and keys are valid UTF-8 without NUL, data is any bytes. It
// imports session, testing and rapid.
package storetest
