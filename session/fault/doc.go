// Package fault is a part of agentd, not an API: the error vocabulary of a session, what a request did
// wrong, where, and what would be right. The server turns an [Error] into the protocol's form; any other
// error is a fault of the server and reaches clients as "internal error".
//
// The package serves the rooms of agentd; programs that use agentd see errors of package
// client or model.
package fault
