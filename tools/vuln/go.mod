// The vulnerability scanner, pinned apart from the other tools.
module github.com/apzuk3/agentd/tools/vuln

go 1.26.7

// v1.9.0 asks for a later commit of telemetry that cannot be had everywhere;
// this one, which golang.org/x/tools v0.52.0 asks for, builds it.
replace golang.org/x/telemetry => golang.org/x/telemetry v0.0.0-20261009151841-97e8ea77aa2a

tool golang.org/x/vuln/cmd/govulncheck

require (
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/telemetry v0.0.0-20261010193011-f71dc92da45e // indirect
	golang.org/x/tools v0.52.0 // indirect
	golang.org/x/vuln v1.9.0 // indirect
)
