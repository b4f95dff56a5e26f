// Package telemetry is a part of agentd, not an API: the metrics of a daemon, in the form of Prometheus.
//
// The rooms that are measured do not know it: they have hooks (functions in their configuration, counts that they
// return), of which [Metrics] has the other ends. A hook only counts: it takes no lock for long, reads nothing and
// allocates next to nothing, and none is on the path of a piece of text.
//
// Each label has a bounded number of values: they come from closed sets, or from a [names], which calls what is
// beyond its bound "other". No label holds a session, a turn, a tool, or who calls.
package telemetry
