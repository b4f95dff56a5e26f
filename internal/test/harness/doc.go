// Package harness holds what the tests in internal/test/e2e share: daemons whose
// sessions are compared or verified when a test ends, raw clients, models that are
// functions, providers that fail, and the checks of streams and logs. Only tests
// import it.
package harness
