// Package storetest is the conformance suite of store.Store. Every implementation runs it in its own tests;
// an implementation that passes keeps the contract.
//
// It must not know an implementation: it checks only what the methods of the interface return. Ids, turn
// ids and keys are valid UTF-8 without NUL; data is any bytes. It imports packages store and record,
// testing and rapid.
package storetest
