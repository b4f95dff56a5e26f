// Package importrules keeps the import graph: which room may import what, and
// why some things have one home only. It reads the import declarations of every
// Go file, whatever its build tags, and imports the standard library alone.
//
// To add a package, add a room. To let a room import more, think first whether
// the thing belongs there, then add it to the room's list.
package importrules_test

const module = "github.com/apzuk3/agentd"

// Generated packages and modules that stand in several rooms' lists. A module
// stands for all its packages.
const (
	gen        = "gen/proto/go/agentd/v1"
	genConnect = "gen/proto/go/agentd/v1/agentdv1connect"

	genGestalt        = "gen/proto/go/gestalt/provider/v1"
	genGestaltConnect = "gen/proto/go/gestalt/provider/v1/gestaltv1connect"

	connect    = "connectrpc.com/connect"
	genai      = "google.golang.org/genai"
	lru        = "github.com/hashicorp/golang-lru/v2"
	jsonschema = "github.com/google/jsonschema-go"
	protobuf   = "google.golang.org/protobuf"
)

// room is a package and what its files may import beyond the standard library.
type room struct {
	// path is relative to the module; "x/..." is every package below x.
	path string
	// floor: imports point down. Tests may import every room on their own floor
	// and below, see testRoom.
	floor int
	// may are rooms (by path) and modules.
	may []string
	// tests is what its tests may import besides: rooms above, where the real
	// thing beats a fake.
	tests []string
	// kit marks a room made for tests: it may import "testing" and testModules,
	// tests of every room may import it, and no other code may.
	kit bool
	// later marks a room for packages that are still to come: its rule holds, and it may be empty.
	later bool
	// knows is what the room is about; it is printed when a rule is broken.
	knows string
}

var rooms = []room{
	{path: gen, floor: 0, may: []string{protobuf, "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go"},
		knows: "messages, generated"},
	{path: genConnect, floor: 0, may: []string{gen, connect},
		knows: "handlers and clients of the protocol, generated"},
	{path: genGestalt, floor: 0, may: []string{protobuf}, knows: "messages of a Gestalt host, generated"},
	{path: genGestaltConnect, floor: 0, may: []string{genGestalt, connect, protobuf},
		knows: "handlers and clients of a Gestalt host's protocol, generated"},

	{path: "internal/protorules", floor: 0, may: []string{gen, protobuf, "buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go"},
		knows: "the rules in the protos, and what breaks them; nothing of what messages mean"},
	{path: "internal/keytext", floor: 0, knows: "what agentd's own keys look like in a text; neither who has them, nor texts"},
	{path: "session/fault", floor: 0, may: []string{gen, protobuf, "internal/keytext"},
		knows: "what a client may read of an error; nothing of sessions"},
	{path: "session/internal/logjson", floor: 0, knows: "JSON as a log holds it; no record"},
	{path: "session/record", floor: 0, may: []string{gen, protobuf, "session/fault", "session/internal/logjson", "internal/tracecontext"},
		knows: "what a log says; neither which records may follow, nor where they are kept"},
	{path: "session/principal", floor: 0, knows: "who asks; neither sessions, nor how a caller proves it"},
	{path: "session/store", floor: 0, may: []string{"session/principal", "session/record", "session/internal/tenant"},
		knows: "what is asked of a database; no database"},
	{path: "session/internal/clock", floor: 0, knows: "time by the clock, and time that no step of it moves"},
	{path: "session/internal/keys", floor: 0, knows: "a caller's provider keys in memory; nothing of them is shown or stored"},
	{path: "session/internal/given", floor: 0, may: []string{gen, "session/fault", "session/limits", "session/record", "session/internal/logjson"},
		knows: "what clients give to tool calls; no session"},
	{path: "session/internal/endlog", floor: 0, may: []string{"session/fault", "session/record"}, knows: "how the end of a turn is logged; no session"},
	{path: "session/internal/lock", floor: 0, knows: "the forms in which a lock is held"},
	{path: "session/internal/position", floor: 0, knows: "the numbers of messages; no message"},
	{path: "session/internal/retry", floor: 0,
		may:   []string{"internal/backoff", "session/fault", "session/internal/lock", "session/internal/refusal", "session/record", "session/store"},
		knows: "which calls of a store are made again; neither sessions nor what records mean"},
	{path: "session/internal/tenant", floor: 0, knows: "the names of sessions in a store; neither sessions nor who asks"},
	{path: "session/internal/refusal", floor: 0, may: []string{"session/fault", "session/internal/tenant"},
		knows: "refusals of several rooms; no session"},
	{path: "session/internal/page", floor: 0, may: []string{"session/fault"}, knows: "pages of a list; not what is listed"},
	{path: "session/limits", floor: 0, may: []string{"session/fault", "session/record"},
		knows: "what one client may make a server hold; neither sessions nor turns"},
	{path: "session/index", floor: 0,
		may: []string{gen, protobuf, "session/fault", "session/record", "session/store", "session/internal/logjson",
			"session/internal/page", "session/internal/position", "session/internal/refusal", "session/internal/retry",
			"session/internal/tenant"},
		knows: "what can be looked up of sessions; neither how a turn runs, nor the wire"},
	{path: "session/internal/render", floor: 0,
		may: []string{gen, protobuf, "internal/tracecontext", "session/fault", "session/index", "session/record", "session/internal/logjson",
			"session/internal/position", "session/internal/recent"},
		knows: "messages of the protocol, made of a log; neither phases, nor locks, nor when something happens"},
	{path: "session/internal/probation", floor: 0, may: []string{"session/record", "session/store"},
		knows: "which turns may run again after deaths of the process; neither turns, nor how they are run"},
	{path: "session/internal/alarm", floor: 0, tests: []string{"session/internal/lock"},
		knows: "timers that fire under a lock; not what it protects"},
	{path: "session/internal/readers", floor: 0, knows: "who reads which session; neither readers nor sessions"},
	{path: "session/internal/stalls", floor: 0,
		knows: "which sessions wait for the store, and who writes for them; not what is written"},
	{path: "session/internal/backlog", floor: 0, knows: "what a reader has not taken yet; neither readers nor what they read"},
	{path: "session/internal/tally", floor: 0, knows: "counts of what sessions hold; no session"},
	{path: "session/internal/tail", floor: 0, may: []string{"session/record"},
		knows: "the end of a log; not what it says"},
	{path: "session/internal/recent", floor: 0, may: []string{"session/record"},
		knows: "what was read of logs a moment ago; neither sessions, nor what records say, nor where they are stored"},
	{path: "session/internal/table", floor: 0, may: []string{"session/internal/lock"},
		knows: "what is in memory and who uses it; not what it is"},
	{path: "session/internal/shared", floor: 0,
		may: []string{gen, protobuf, "session/fault", "session/internal/lock", "session/internal/logjson", "session/principal",
			"session/record", "session/store"},
		knows: "the state that sessions have in common; neither sessions, nor where it is kept"},
	{path: "session/internal/account", floor: 0,
		may:   []string{gen, "session/fault", "session/record", "session/store", "session/internal/lock"},
		knows: "what tenants may spend; neither sessions nor models"},
	{path: "session/internal/past", floor: 0, may: []string{"session/internal/logjson", "session/record"},
		knows: "what a log says of turns that are over; neither sessions in memory nor stores"},
	{path: "session/internal/ownkeys", floor: 0, may: []string{"session/internal/logjson", "session/internal/shared"},
		knows: "the keys of state of one session, and their bounds; no session"},
	{path: "session/internal/storage", floor: 0,
		may: []string{"session/limits", "session/record", "session/store", "session/internal/account", "session/internal/clock",
			"session/internal/recent", "session/internal/retry", "session/internal/shared", "session/internal/stalls"},
		knows: "a store as sessions use it; no session"},
	{path: "session/internal/phase", floor: 0, knows: "which phase may follow which; neither turns nor calls"},
	{path: "session/internal/live", floor: 0,
		may: []string{gen, protobuf, "internal/tracecontext", "session/fault", "session/index", "session/limits", "session/principal", "session/record",
			"session/store",
			"session/internal/account", "session/internal/backlog", "session/internal/tally", "session/internal/alarm", "session/internal/clock", "session/internal/endlog", "session/internal/given", "session/internal/keys", "session/internal/lock", "session/internal/logjson",
			"session/internal/ownkeys", "session/internal/past", "session/internal/phase", "session/internal/position", "session/internal/probation", "session/internal/recent", "session/internal/refusal", "session/internal/render",
			"session/internal/retry", "session/internal/shared", "session/internal/storage", "session/internal/tail", "session/internal/tenant"},
		knows: "one session; neither the others, nor who has it in memory, nor engine, database or transport"},
	{path: "session", floor: 1,
		may: []string{gen, protobuf, "internal/newid", "internal/tracecontext", "session/fault", "session/index", "session/limits", "session/principal", "session/record",
			"session/store",
			"session/internal/clock", "session/internal/given", "session/internal/keys", "session/internal/live", "session/internal/lock", "session/internal/logjson",
			"session/internal/page", "session/internal/phase", "session/internal/position", "session/internal/probation", "session/internal/readers",
			"session/internal/refusal", "session/internal/render", "session/internal/retry", "session/internal/shared",
			"session/internal/storage", "session/internal/tally", "session/internal/table", "session/internal/tenant"},
		tests: []string{"session/store/sqlite"},
		knows: "the conversations of a server; neither engine, nor database, nor transport"},
	{path: "internal/models/catalog", floor: 0, may: []string{"internal/yamlfile"},
		knows: "what models cost and can do; neither providers' code, nor how they count"},
	{path: "internal/seam", floor: 0, may: []string{genai}, knows: "what model calls share and package model does not show"},
	{path: "internal/encoded", floor: 0, may: []string{genai, lru},
		knows: "what is kept of a conversation between calls; neither wires nor models"},
	{path: "internal/wiretap", floor: 0, knows: "what is heard of the HTTP answers of a call, without its keys"},
	{path: "model", floor: 1, may: []string{"internal/encoded", "internal/seam", genai},
		tests: []string{"model/adapter", "internal/models/echo", "internal/models/scripted", "model/gemini", "model/anthropic", "model/openai"},
		knows: "what a provider must do; neither sessions, nor the engine, nor the protocol"},
	{path: "client", floor: 1, may: []string{gen, genConnect, connect, jsonschema, protobuf, "internal/backoff", "internal/newid",
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/trace"},
		knows: "the protocol from the caller's side; nothing of the server"},

	{path: "client/conf", floor: 1, may: []string{"internal/plainfile"}, knows: "the settings of a project; neither tools, nor the gate, nor connections"},
	{path: "client/permit", floor: 2, may: []string{"client", "client/conf", "mvdan.cc/sh/v3"}, tests: []string{"agentdtest"},
		knows: "what tools may do, and who is asked; neither tools nor connections"},
	{path: "client/internal/gated", floor: 2, may: []string{"client", "client/permit"}, knows: "how a call asks the gate; no tool"},
	{path: "client/memory", floor: 1, may: []string{"internal/plainfile"}, knows: "what users and projects have written down for agents; neither tools nor connections"},
	{path: "client/skills", floor: 3, may: []string{"client", "client/internal/gated", "client/permit", "internal/plainfile", "internal/yamlfile"}, tests: []string{"agentdtest", "client/conf"},
		knows: "skills as folders, and the tools that load them; neither instructions nor connections"},
	{path: "client/tools", floor: 3, may: []string{"client", "client/conf", "client/internal/gated", "client/permit", "internal/plainfile", "internal/toolcmd", "github.com/itchyny/gojq"}, tests: []string{"agentdtest"},
		knows: "files, search, the shell, the web and plans, as tools; neither people nor connections to a daemon"},
	{path: "client/loop", floor: 2, may: []string{"client", gen}, tests: []string{"agentdtest"},
		knows: "turns as chat orchestrators ask for them; neither tools nor connections"},
	{path: "client/mcp", floor: 3, may: []string{"client", "client/internal/gated", "client/permit", "internal/backoff", "github.com/google/jsonschema-go", "github.com/modelcontextprotocol/go-sdk", "golang.org/x/oauth2"},
		tests: []string{"agentdtest", "client/conf"},
		knows: "MCP servers as tools of a client; neither the gate's rules, nor who is asked, nor the daemon"},
	{path: "client/harness", floor: 4, may: []string{"client", "client/conf", "client/mcp", "client/memory", "client/permit", "client/skills", "client/tools"}, tests: []string{"agentdtest", "github.com/modelcontextprotocol/go-sdk"},
		knows: "which parts a program with agents has; not how they work"},
	{path: "client/terminal", floor: 2, may: []string{"client", "golang.org/x/sys"}, tests: []string{"agentdtest"},
		knows: "a person at a terminal, what is shown and asked there; nothing of connections"},

	{path: "client/console", floor: 3, may: []string{"client", "client/terminal", "github.com/mattn/go-isatty"}, tests: []string{"agentdtest"},
		knows: "how events look as lines; neither people who answer nor connections"},

	{path: "internal/backoff", floor: 0, knows: "how long to wait between attempts"},
	{path: "internal/heap", floor: 0, knows: "when Go's heap is collected; not what is in it"},
	{path: "internal/plainfile", floor: 0, knows: "regular files, read and replaced; not what they hold"},
	{path: "internal/newid", floor: 0, knows: "what an id of a session is made of"},
	{path: "internal/jsondiff", floor: 0, knows: "where two JSON values differ, and whether they do"},
	{path: "internal/yamlfile", floor: 0, may: []string{"github.com/goccy/go-yaml"}, knows: "YAML, and no file's meaning"},
	{path: "internal/toolcmd", floor: 0, knows: "programs as tools, on the client"},
	{path: "internal/configfile", floor: 1, may: []string{"internal/yamlfile"}, knows: "the form of a configuration file; neither its keys nor flags"},
	{path: "internal/agentfile", floor: 1, may: []string{gen, protobuf, "internal/yamlfile"}, tests: []string{"internal/daemon"},
		knows: "how agents and tools are written down in files; not what a tree may be"},

	{path: "session/store/sqlite", floor: 1,
		may:   []string{"session/store", "session/record", "session/internal/tenant", "modernc.org/sqlite", "github.com/pressly/goose/v3", "golang.org/x/sys"},
		tests: []string{"internal/sealed"},
		knows: "a store.Store in SQLite"},
	{path: "internal/check", floor: 1, may: []string{"session/index", "session/record", "session/store"},
		tests: []string{"adkbridge", "agentdtest", "internal/test/testdaemon", "client"},
		knows: "what a store may hold; neither databases, nor the engine, nor sessions in memory"},
	{path: "internal/sealed", floor: 1, may: []string{"session/record", "session/store"}, tests: []string{"session/store/sqlite"},
		knows: "how values are encrypted before a store has them; neither what they say, nor which database it is"},
	{path: "session/store/storetest", floor: 1, kit: true, may: []string{"session/store", "session/record", "session/internal/tenant"},
		knows: "what every store.Store must do"},

	{path: "model/adapter", floor: 1, may: []string{"model", "internal/rawjson", "model/internal/sse", "model/internal/toolschema", "internal/seam", "internal/wiretap", genai},
		knows: "what adapters share, also those of strangers; no provider"},
	{path: "internal/models/words", floor: 2, may: []string{"model", "model/adapter", genai},
		knows: "conversations in words; no provider"},
	{path: "internal/modelcall", floor: 2,
		may:   []string{"internal/rawjson", "model", "model/adapter", "internal/models/words", "internal/backoff", "internal/seam", "internal/wiretap", genai, lru},
		knows: "what surrounds one call of a model: limits, retries, the breaker; neither which models there are, nor sessions, nor the engine"},
	{path: "internal/models", floor: 2, may: []string{"model", "internal/modelcall", "internal/models/catalog", "internal/seam"},
		knows: "which models a server has; neither sessions, nor the engine, nor the protocol"},
	{path: "internal/rawjson", floor: 0, knows: "JSON text whose keys stay in order"},
	{path: "model/internal/sse", floor: 0, may: []string{"internal/seam"},
		knows: "server-sent events; no provider"},
	{path: "model/internal/toolschema", floor: 1, may: []string{"internal/rawjson", genai},
		knows: "schemas of tools as every provider takes them"},
	{path: "model/internal/wire", floor: 2, may: []string{"model", "model/adapter", "internal/encoded", "internal/rawjson", "internal/seam", genai},
		knows: "what the built-in providers' wires have in common"},
	{path: "model/internal/talk", floor: 2, kit: true, may: []string{"model", "model/adapter", "internal/encoded", "internal/seam", genai},
		knows: "conversations as tests of wires need them; no provider"},
	{path: "model/gemini", floor: 2,
		may: []string{"model", "model/adapter", "internal/encoded", "internal/rawjson", "model/internal/sse", "model/internal/toolschema", "model/internal/wire", "internal/seam", "internal/wiretap",
			genai, "cloud.google.com/go/auth"},
		knows: "Gemini's wire"},
	{path: "model/anthropic", floor: 2,
		may:   []string{"model/internal/sse", "model/internal/toolschema", "model", "model/adapter", "internal/encoded", "internal/rawjson", "model/internal/wire", "internal/seam", genai},
		knows: "Anthropic's wire"},
	{path: "model/openai", floor: 2,
		may:   []string{"model/internal/sse", "model/internal/toolschema", "model", "model/adapter", "internal/encoded", "internal/rawjson", "model/internal/wire", "internal/seam", "internal/wiretap", genai},
		knows: "OpenAI's wires"},
	{path: "internal/models/record", floor: 2, may: []string{"internal/rawjson", "model", "model/adapter", "internal/modelcall", "internal/jsondiff", "internal/seam"},
		knows: "model calls in a file; neither providers nor sessions"},
	{path: "internal/models/scripted", floor: 2,
		may: []string{"internal/rawjson", "model", "model/adapter", "internal/modelcall", "internal/models/record", "internal/models/words", "internal/backoff", "internal/jsondiff", "internal/seam",
			"internal/yamlfile", genai, lru},
		knows: "answers from a script"},
	{path: "internal/models/echo", floor: 2, may: []string{"model", "model/adapter", "internal/backoff", "internal/models/words", genai},
		knows: "a model that repeats"},
	{path: "model/modeltest", floor: 2, kit: true, may: []string{"model", "model/adapter", "internal/modelcall", "internal/models", "internal/seam", genai},
		knows: "what every model.Provider must do"},

	{path: "adkbridge", floor: 2,
		may: []string{"internal/encoded", "internal/tracecontext", "session", "session/record", "session/fault", "model", "model/adapter", "internal/modelcall", "internal/models", "internal/models/words", "internal/jsondiff", "internal/seam",
			gen, protobuf, genai, jsonschema, "google.golang.org/adk/v2",
			"github.com/google/uuid", lru, "golang.org/x/sync/semaphore"},
		knows: "the engine; neither database nor transport"},
	{path: "server", floor: 2,
		may: []string{"internal/tracecontext", "session", "session/index", "session/principal", "session/store", "session/record", "session/fault", gen, genConnect, connect, protobuf, "internal/protorules",
			"connectrpc.com/cors", "connectrpc.com/grpchealth", "connectrpc.com/grpcreflect", "github.com/rs/cors", "golang.org/x/time",
			"golang.org/x/sync/semaphore", lru, "internal/ledger", "internal/keytext"},
		knows: "the wire; neither engine, nor models, nor database"},

	{path: "internal/ledger", floor: 1, may: []string{"session/principal"},
		knows: "what a server keeps beside its sessions; neither requests nor SQL"},
	{path: "internal/ledger/sqlledger", floor: 2, may: []string{"internal/ledger", "session/principal"}, tests: []string{"session/store/sqlite"},
		knows: "a ledger in the tables of an SQL database"},
	{path: "internal/ledger/ledgertest", floor: 2, kit: true, may: []string{"internal/ledger", "session/principal", "session/record", "session/store"},
		knows: "what every ledger must do, and what it and a store make of tenants"},
	{path: "internal/tenantfile", floor: 1, may: []string{"internal/configfile", "internal/models/catalog", "internal/yamlfile"},
		knows: "what an operator writes about tenants; neither sessions nor which models there are"},
	{path: "internal/agents", floor: 2, may: []string{"internal/ledger", "session/fault", "session/principal", "session/record", gen, protobuf},
		knows: "agent trees that callers have a server keep; neither requests, sessions nor SQL"},
	{path: "internal/audit", floor: 2, may: []string{"internal/keytext", "internal/ledger"},
		knows: "how entries of the audit trail are written; not what is worth one"},
	{path: "internal/auth", floor: 2, may: []string{"internal/ledger", "session/principal", "github.com/coreos/go-oidc/v3", "github.com/hashicorp/golang-lru/v2"},
		knows: "how a caller proves who it is; neither sessions nor the protocol"},

	{path: "internal/telemetry", floor: 2,
		may: []string{"internal/modelcall", "model", "session/record", "session/store", "github.com/prometheus/client_golang",
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric"},
		knows: "what is counted and measured of a daemon; neither requests, nor sessions, nor who calls"},

	{path: "internal/tracecontext", floor: 0, may: []string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/trace"},
		knows: "W3C's Trace Context; neither spans nor what is traced"},
	{path: "internal/otlp", floor: 2,
		may: []string{"internal/modelcall", "internal/tracecontext", "session", "session/record", "session/store", lru,
			"github.com/prometheus/client_golang", "go.opentelemetry.io/contrib/bridges/prometheus", "go.opentelemetry.io/otel",
			"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp", "go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp",
			"go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/sdk/metric", "go.opentelemetry.io/otel/trace", "golang.org/x/net"},
		knows: "spans, made of logs, and where they are exported to; neither requests nor the engine"},

	{path: "internal/faces", floor: 3, may: []string{"server", "internal/faces/managed"},
		knows: "which faces come with agentd; not what they speak"},
	{path: "internal/faces/managed", floor: 2, may: []string{"server", gen, genConnect, connect, protobuf},
		tests: []string{"internal/daemon"},
		knows: "the protocol of Managed Agents, in terms of what a client of SessionService can do; neither sessions, nor stores, nor the daemon"},
	{path: "internal/faces/...", floor: 2, later: true, may: []string{"server", gen, genConnect, connect, protobuf},
		knows: "another protocol, in terms of what a client of SessionService can do; neither sessions, nor stores, nor the daemon"},

	{path: "internal/gestalt", floor: 2,
		may:   []string{gen, genConnect, genGestalt, genGestaltConnect, connect, protobuf, "client", "internal/agentfile", "internal/protorules"},
		knows: "a Gestalt host, in terms of what a client of SessionService and Run can do; neither sessions, nor SQL, nor the daemon"},
	{path: "internal/gestalt/sqlstore", floor: 3, may: []string{"internal/gestalt"}, tests: []string{"session/store", "session/store/sqlite"},
		knows: "what a Gestalt host says, in the tables of an SQL database; neither the host nor the daemon"},

	{path: "internal/payloads", floor: 2, may: []string{"session/index", "session/record", "session/store", lru},
		knows: "when payloads leave a log; neither the engine's form, nor databases, nor sessions in memory"},
	{path: "internal/daemon", floor: 3,
		may: []string{"internal/agents", "internal/payloads", "internal/otlp", "session", "session/limits", "session/principal", "session/store", "session/record", "session/store/sqlite", "internal/check", "internal/configfile", "internal/tenantfile", "internal/audit", "internal/auth", "internal/ledger", "internal/ledger/sqlledger", "internal/keytext", "internal/sealed", "model", "internal/modelcall", "internal/models", "internal/models/catalog", "model/gemini", "model/anthropic",
			"model/openai", "internal/models/scripted", "internal/models/echo", "internal/models/record", "internal/telemetry", "adkbridge", "server", gen, genConnect, connect,
			"connectrpc.com/grpchealth", "connectrpc.com/grpcreflect", "golang.org/x/net", "internal/protorules",
			"google.golang.org/protobuf/types/known/durationpb"},
		knows: "how the rooms are wired together, and nothing else"},

	{path: "internal/cli", floor: 3, may: []string{"internal/backoff", "internal/toolcmd", "client", "client/permit", "client/terminal", gen, protobuf, "github.com/aymanbagabas/go-udiff"},
		knows: "the command line as a user of package client: what to ask a daemon and how to show it; neither connections nor the server"},

	{path: "internal/treetest", floor: 4,
		may: []string{"internal/agentfile", "internal/cli", "internal/daemon", "internal/models/scripted", "internal/yamlfile", "model", "client", protobuf,
			"github.com/aymanbagabas/go-udiff"},
		knows: "cases about trees in files, and their transcripts; neither flags nor terminals"},
	{path: "internal/mcpserve", floor: 3, may: []string{"client", "client/permit", "client/terminal", "github.com/modelcontextprotocol/go-sdk"}, tests: []string{"agentdtest"},
		knows: "agent trees as tools of an MCP server; neither files nor flags, nor the gate's rules, nor where the daemon is"},

	{path: "internal/markdown", floor: 0, may: []string{"github.com/charmbracelet/x/ansi", "github.com/yuin/goldmark"},
		knows: "how Markdown looks on a terminal; neither terminals nor who writes it"},
	{path: "internal/chat", floor: 4,
		may: []string{"internal/cli", "internal/markdown", "internal/plainfile", "client", "client/console", "client/skills", "client/terminal", gen,
			"charm.land/bubbletea/v2", "github.com/aymanbagabas/go-udiff", "github.com/charmbracelet/x/ansi"},
		knows: "a conversation at a terminal: lines or a screen, commands, interrupts, what was used; not how a daemon is reached, nor flags"},
	{path: "cmd/agentd", floor: 4,
		may: []string{"internal/chat", "internal/faces", "internal/gestalt", "internal/gestalt/sqlstore", "internal/mcpserve", "internal/treetest", "internal/daemon", "internal/cli", "internal/heap", "internal/agentfile", "internal/configfile", "internal/toolcmd", "client", "client/conf", "client/mcp", "client/memory", "client/permit", "client/skills", "client/tools", "client/terminal", gen, protobuf,
			"github.com/KimMachineGun/automemlimit", "github.com/alecthomas/kong", "github.com/mattn/go-isatty"},
		knows: "flags, environment, signals, exit codes"},
	{path: "agentdhost", floor: 4, may: []string{"internal/daemon", "model", "server", "session", "session/principal"}, tests: []string{"client", gen},
		knows: "a real daemon in somebody else's program"},
	{path: "internal/test/testdaemon", floor: 4, kit: true, may: []string{"internal/daemon", "internal/modelcall", "session", "session/limits", "session/principal", "session/store"},
		knows: "the options of a test's daemon that show what is within"},
	{path: "agentdtest", floor: 4, kit: true, may: []string{"internal/daemon", "internal/test/testdaemon", "internal/modelcall", "client", "model"},
		knows: "a real daemon for tests"},

	{path: "examples", floor: 5, knows: "nothing of its own: its tests run the examples"},
	{path: "examples/provider/acme", floor: 4, may: []string{"model", "model/adapter", genai},
		knows: "what somebody who adds a provider can import"},
	{path: "examples/face/lines", floor: 4, may: []string{"server", gen, connect},
		knows: "what somebody who adds a face can import"},
	{path: "examples/face", floor: 5, may: []string{"agentdhost", "examples/face/lines", "client", "server"},
		knows: "a daemon with a face of its own"},
	{path: "examples/provider", floor: 5, may: []string{"agentdhost", "examples/provider/acme", "client", "model"},
		knows: "a daemon with one more provider"},
	{path: "examples/supportdesk", floor: 5, may: []string{"client", "client/terminal", "examples/internal/demo"},
		knows: "a chat, and a second process that follows it"},
	{path: "examples/internal/demo", floor: 5, may: []string{"agentdtest", "github.com/modelcontextprotocol/go-sdk"},
		knows: "a server to talk to, and a folder with an MCP server"},
	{path: "examples/harness", floor: 5, may: []string{"client", "client/harness", "client/permit", "examples/internal/demo"},
		knows: "what a program with tools, MCP and a gate imports"},
	{path: "examples/...", floor: 5, may: []string{"client", "client/terminal", "agentdtest", "examples/internal/demo"},
		knows: "what a user of agentd can import"},
	{path: "ts/test/witness", floor: 5, may: []string{"client", gen},
		knows: "the Go client, for the tests of the TypeScript client"},
	{path: "ts/test/guarded", floor: 5, may: []string{"agentdhost"},
		knows: "a daemon that asks who calls, for the tests of the TypeScript client"},
	{path: "internal/test/e2e/...", floor: 5,
		knows: "nothing of its own: its tests run the whole of agentd"},
	{path: "internal/test/harness", floor: 5, kit: true,
		may: []string{"adkbridge", "agentdtest", "client", gen, genConnect, connect, genai, protobuf, "internal/test/fakeprovider", "internal/test/plainlog",
			"internal/test/providertest", "internal/test/sessionfront", "internal/test/testdaemon", "internal/check", "model", "model/anthropic", "model/gemini",
			"model/openai", "session", "session/store", "session/record", "session/store/sqlite"},
		knows: "what the tests of the whole of agentd share"},
	{path: "internal/test/chaos", floor: 5,
		knows: "nothing of its own: its tests break the whole of agentd"},
	{path: "internal/test/metrics", floor: 5,
		knows: "nothing of its own: its tests watch the whole of agentd"},
	{path: "internal/test/traces", floor: 5,
		knows: "nothing of its own: its tests follow a turn through the whole of agentd"},
	{path: "internal/test/attacks", floor: 5,
		knows: "nothing of its own: its tests attack the whole of agentd"},

	{path: "internal/test/providertest", floor: 2, kit: true, may: []string{"internal/jsondiff"},
		knows: "recorded traffic of providers, told apart from our adapters"},
	{path: "internal/test/fakeprovider", floor: 2, kit: true, may: []string{"internal/test/providertest"},
		knows: "providers' wires, and what a test has them say"},
	{path: "internal/test/sessionfront", floor: 1, kit: true, may: []string{gen, genConnect, connect},
		knows: "Run by means of SessionService"},
	{path: "internal/test/plainlog", floor: 2, kit: true, may: []string{"session", "session/record"},
		knows: "the log of a session, without what differs from run to run"},
	{path: "internal/test/ttytest", floor: 0, kit: true, may: []string{"golang.org/x/sys"},
		knows: "a terminal of the system, and keys"},
	{path: "internal/test/logtext", floor: 1, kit: true, may: []string{"session/record"},
		knows: "logs as text that fuzzers change; nothing of who reads them"},
	{path: "internal/test/heldaddr", floor: 0, kit: true,
		knows: "addresses that servers come back to"},
	{path: "internal/test/memledger", floor: 2, kit: true, may: []string{"internal/ledger", "internal/ledger/sqlledger", "session/store/sqlite"},
		knows: "a ledger in memory"},
	{path: "internal/test/issuer", floor: 2, kit: true, may: []string{"github.com/go-jose/go-jose/v4"},
		knows: "tokens as an OpenID Connect issuer makes them"},
	{path: "internal/test/testmain", floor: 0, kit: true,
		knows: "how the tests of a package that wait are run"},
	{path: "internal/contract", floor: 0, knows: "the part of the protocol that may never change"},
	{path: "internal/importrules", floor: 0, knows: "this table"},
}

// ban is an import that has few homes, or none, in code that is not a test.
type ban struct {
	// path is a package or everything below it.
	path string
	// but are the rooms it is for; "x/..." is every package below x.
	but []string
	// because is printed when the ban is broken.
	because string
}

var bans = []ban{
	{path: "google.golang.org/adk", but: []string{"adkbridge"},
		because: "adkbridge is the only room that knows the engine, so that it can be replaced"},
	{path: "github.com/goccy/go-yaml", but: []string{"internal/yamlfile"},
		because: "one room reads YAML, with one set of rules and bounds"},
	{path: "database/sql", but: []string{"session/store/sqlite", "internal/ledger/sqlledger", "internal/gestalt/sqlstore", "internal/sealed"},
		because: "storage stands behind store.Store"},
	{path: "net/http", but: []string{"server", "internal/faces", "internal/faces/...", "internal/gestalt", "internal/auth", "internal/telemetry", "internal/otlp", "internal/test/issuer", "client", "client/mcp", "internal/mcpserve", "client/tools", "model/...", "model", "internal/modelcall", "internal/wiretap", "internal/daemon", "internal/test/providertest",
		"internal/test/fakeprovider", "internal/test/harness", "internal/test/sessionfront", "cmd/agentd", "agentdtest", "internal/test/testdaemon", "agentdhost", "examples/...", "ts/test/guarded", genConnect, genGestaltConnect},
		because: "a turn belongs to its session and not to a connection: the domain, the engine and the stores know no transport"},
	{path: "os/exec", but: []string{"internal/toolcmd", "client/mcp", "internal/test/ttytest", "examples/supportdesk", "internal/sealed"},
		because: "the server never runs a tool; tools and MCP servers run on the client. internal/sealed runs what the operator names, for keys"},
	{path: "github.com/prometheus", but: []string{"internal/telemetry", "internal/otlp"},
		because: "the rooms that are measured have hooks, so that what measures them can be replaced"},
	{path: "go.opentelemetry.io", but: []string{"internal/telemetry", "internal/otlp", "internal/tracecontext", "client"},
		because: "the rooms that are traced write facts and pass contexts on, so that what makes spans of them can be replaced"},
	{path: "plugin", because: "agentd is one static binary"},
	{path: "net/http/pprof", but: []string{"cmd/agentd"},
		because: "it registers itself on the process's default mux, which programs with an agentdhost may serve; the command does not"},
	{path: "expvar", because: "it registers itself on the process's default mux"},
	{path: "log", because: "logging is log/slog, on a logger that was handed in"},
	{path: "log/syslog", because: "logging is log/slog, on a logger that was handed in"},
	{path: "math/rand", because: "use math/rand/v2, or crypto/rand where it guards something"},
	{path: "unsafe", but: []string{gen, genGestalt}, because: "nothing here is worth it"},
	{path: "testing", because: "only test kits take a testing.TB"},
	{path: "C", because: "agentd builds with CGO_ENABLED=0"},
}

// bansBelow lists the packages beneath a banned one that have a rule, or a
// reason, of their own.
var bansBelow = map[string][]string{
	"log":       {"log/slog", "log/syslog"},
	"net/http":  {"net/http/pprof"},
	"math/rand": {"math/rand/v2"},
}

// testModules may be imported by kits, and by tests, which besides have the
// modules of all rooms.
var testModules = []string{
	"go.uber.org/goleak",
	"pgregory.net/rapid",
	"github.com/google/go-cmp",
	"github.com/prometheus/common",
	"github.com/prometheus/client_model",
	"go.opentelemetry.io/proto/otlp",
	"golang.org/x/sync",
	"golang.org/x/net",
	"google.golang.org/grpc",
	"buf.build/go/protovalidate",
	"github.com/anthropics/anthropic-sdk-go",
	"github.com/openai/openai-go/v3",
}
