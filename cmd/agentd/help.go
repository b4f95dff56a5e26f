package main

import (
	"strings"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/client/conf"
)

// longHelps puts the texts of helps into the commands and flags that name them. kong.Vars
// would do so, too, but looks through all texts for each flag, for tens of milliseconds.
func longHelps(k *kong.Kong) error {
	return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		switch n := node.(type) {
		case *kong.Node:
			n.Help = named(n.Help)
		case *kong.Value:
			n.Help, n.Enum = named(n.Help), named(n.Enum)
		}
		return next(nil)
	})
}

// named is the text that a tag names, or the tag's own. Kong refuses names that are left.
func named(text string) string {
	name, ok := strings.CutPrefix(text, "${")
	if long := helps[strings.TrimSuffix(name, "}")]; ok && long != "" {
		return long
	}
	return text
}

// helps are the texts that are too long for the line of their command or flag, whose tag
// names them, such as help:"${replay}".
var helps = map[string]string{ //nolint:gosec // names of flags, and what they say
	// What flags may be.
	"outputs":       ",text,json,events",
	"pack_modes":    "," + strings.Join(conf.Modes(), ","),
	"turn_statuses": "pending,running,waiting-for-client,waiting-for-input,succeeded,failed,canceled",

	// The commands.
	"replay": "Run a session of a stopped daemon again on its own log, and tell where it differs.",

	"gestalt_package": "Write a folder for the host, with this program, manifest.yaml and the schema of the " +
		"configuration, and serve nothing.",

	// serve, and commands that read its configuration.
	"config_file": "The configuration of agentd serve: a YAML file, whose keys are the names of flags with _ for -.",

	// serve.
	"serve_data": "Folder of the database, ':memory:' for none. Default: agentd in the user's data folder.",
	"serve_store": "Database of PostgreSQL in place of --data, postgres://USER@HOST/DATABASE; see docs/postgres.md. " +
		"Others on this machine see flags: a password belongs into the variable or the file.",
	"serve_advertise": "URL at which other replicas over the database of --store reach this one, " +
		"such as https://10.0.0.3:8080. Default: none, and this server has the database alone. See docs/cluster.md.",
	"serve_replica_secret": "What replicas know each other by, the same for all, at least 32 characters. " +
		"Others on this machine see flags: it belongs into the variable or the file.",
	"serve_replica_ca": "Certificates, PEM, that those of the other replicas are proved by, with https. " +
		"Default: the system's.",
	"serve_bus": "Servers of NATS that carry hints between replicas, nats://USER@HOST:4222 or tls://…, with " +
		"commas between. Default: none; no call needs them. Others on this machine see flags: a password belongs " +
		"into the variable or the file. See docs/cluster.md.",
	"serve_bus_creds":    "File with a JWT and a key, or a key alone, that prove this replica to NATS.",
	"serve_bus_ca":       "Certificates, PEM, that those of NATS are proved by, with tls://. Default: the system's.",
	"serve_replica_name": "What operators call this replica. Default: host and port of --advertise.",
	"serve_replica_ttl": "How long a replica may not reach the database before others take its sessions over, " +
		"the same for all, at least 3s. Default: 15s; 2s for one whose connection to it is gone.",
	"serve_admin_addr": "Where metrics (/metrics), health (/healthz, /readyz) and profiles (/debug/pprof/) are, " +
		"without authentication; 'off' for nowhere. The default address may be in use: the server starts without them.",
	"serve_drop_tool_payloads": "Remove what tools were given and returned from the logs of all sessions " +
		"when their turns are over. Without it each session says so when it is made.",
	"serve_trace_share": "Share of traces, from 0 to 1, that are exported to the collector of otlp_endpoint, " +
		"of those that begin here: of others whoever began them decides.",
	"encryption_keys": "Encrypt what sessions say with the first key of this file; the others open what they have " +
		"encrypted. A line is an id and 32 bytes in base64, see agentd encryption new-key.",
	"encryption_command": "Encrypt with data keys that this program wraps and unwraps (a KMS), in place of the first " +
		"key of --encryption-keys. Its argument is wrap or unwrap; it reads and writes bytes.",
	"serve_allow_network_files": "Take a --data folder on a network file system, which is refused otherwise: " +
		"nothing keeps daemons of other machines out of it.",
	"serve_no_background_agents": "Have no agent spawn others that work in the background.",
	"serve_face":                 "Serve this protocol of others too; may be given several times.",
	"serve_cors_origins": "Origins from which web pages may call SessionService, " +
		"such as https://app.example.com; '*' is any.",
	"serve_allowed_hosts": "Names by which the server may be called over a loopback address, " +
		"besides localhost and addresses, such as that of a proxy on this machine.",
	"serve_insecure": "Listen where other machines reach the server although nothing authenticates callers: " +
		"whoever reaches it may run agents at your cost, " +
		"until the first API key is made (agentd keys create).",
	"serve_client_ca": "Certificates, PEM, of those who issue certificates to clients. " +
		"A client certificate names the caller by a URI agentd://TENANT/ROLE/ID. Needs --tls-cert.",
	"serve_oidc_issuer":       "OpenID Connect issuer, https://HOST, whose tokens are taken, besides API keys.",
	"serve_oidc_audience":     "What a token of the issuer has to be for (aud).",
	"serve_oidc_id_claim":     "Claim of a token that names the caller.",
	"serve_oidc_tenant_claim": "Claim that names the caller's tenant. Default: callers have none.",
	"serve_oidc_role_claim": "Claim that names the role: caller, observer or operator. " +
		"Default, and without that claim: caller.",
	"serve_trusted_proxies": "Addresses or networks, such as 10.0.0.0/8, of a proxy that has authenticated callers " +
		"and says in headers who they are.",
	"serve_proxy_user_header":   "Header in which the proxy names the caller.",
	"serve_proxy_tenant_header": "Header in which it names the caller's tenant. Default: callers have none.",
	"serve_proxy_role_header":   "Header in which it names the role. Default, and without that header: caller.",
	"serve_tenant_day_budget": "What each tenant may spend on model calls in a day of UTC: tokens=N,cost=DOLLARS. " +
		"The most that a call can take is reserved before it begins.",
	"serve_tenant_month_budget": "What each tenant may spend in a month of UTC, as --tenant-day-budget.",
	"serve_max_tenant_sessions": "Sessions of one tenant, until they are deleted; 0 is no bound. " +
		"Callers without a tenant have no bound of their own.",
	"serve_max_tenant_turns": "Turns of one tenant at once, at all servers over one database.",
	"serve_max_tenant_streams": "Streams of one tenant at once, at all servers over one database. " +
		"Callers without a tenant have no bound of their own.",
	"serve_tenant_requests_per_second": "Requests a second that one tenant may make at all servers over one " +
		"database, twice as many at once. Callers without a tenant have no bound of their own.",
	"serve_tenants": "A file that says of tenants, by their names, what they may spend, which models they may use, " +
		"at which prices, and with which keys and addresses of providers.",
	"serve_backends": "A file that names the servers that may run agents of a tree, each with its kind, address and " +
		"the environment variable of its key.",
	"serve_webhooks": "A file that names servers that are told, by signed requests, when turns end, when a person is " +
		"asked, and when budgets are nearly spent.",
	"schedules_words": "A file with an agent, unless --agent or --session names one, and what each run is told.",
	"schedules_id":    "What it is to be called. Default: the daemon names it.",
	"schedules_cron":  "Minute, hour, day of the month, month, day of the week: '30 2 * * 1-5'; or @daily.",
	"schedules_zone":  "The zone of --cron, such as Europe/Berlin. Default: UTC.",
	"schedules_agent": "An agent that the daemon keeps, NAME or NAME@VERSION.",
	"serve_create_sessions": "Make the session that a Run request names when there is none, " +
		"for clients that cannot ask for it.",
	"serve_on_disconnect": "What becomes of a turn that Run has started without on_disconnect " +
		"when its last client is gone: auto (it is canceled if its client is too old to know on_disconnect " +
		"and has reset its stream, and goes on otherwise), continue (it goes on; off is the same), or cancel.",
	"serve_shutdown_grace": "How long model calls that are under way are waited for when the server stops. " +
		"All else is suspended at once, and goes on after the next start.",
	"serve_purge_after": "How long the log of a session that is not used is kept; 0 is for ever.",
	"serve_hibernate_after": "How long a turn must only wait for results until it lets its engine go, which " +
		"runs again from the log; longer by a thousandth for each record of the session.",
	"serve_handover_grace": "How long the tool calls of a client that has left wait before another client is asked.",
	"serve_model_cool_down": "How long the calls of a model that keeps failing are suspended at first; " +
		"longer each time it fails again, up to 2m.",
	"serve_idle_timeout": "Longest silence on a stream, both ways. Default: 15m, or 5m more than --tool-timeout.",
	"serve_write_timeout": "How long a client may take to read 16 KiB of what it is sent, " +
		"or a message that is smaller.",
	"serve_instruction_file": "A file whose text is put before the instruction of every agent.",
	"serve_turn_budget": "What one turn may spend at most, such as calls=100,tokens=2000000,cost=5,time=30m. " +
		"Default: no bound.",
	"serve_session_budget": "What one session may spend at most, in the same form. Default: no bound.",
	"serve_max_reply_bytes": "About how much memory large replies may take at the same time, " +
		"and large requests as much. Above it streams wait for each other, other replies are refused for a while, " +
		"and clients that read less than 64 KiB a second are cut off.",
	"serve_max_request_bytes": "Size of the requests that all turns make of models at the same time, " +
		"above which they wait for each other; those above 1 MiB share a quarter of it.",
	"serve_max_shared_bytes": "Size of the state that sessions share, as JSON, of each of app: and user:.",
	"serve_quarantine_after": "How often in a row a turn may be running when the server dies, " +
		"without a step forward, until it is failed; 0 is never.",
	"serve_model_breaker": "How many model calls of one model and key have to fail in a row, tries counted, " +
		"until such calls are suspended; 0 is never.",

	// serve, and run --local.
	"prices": "A file with prices and limits of models, laid over the built-in table.",
	"serve_eventlog": "Write a row for each event into the table agent_eventlog, for programs that read it with " +
		"SQL; see docs/eventlog.md.",
	"serve_session_db_path": "The same as --eventlog, with the database in this folder, or of this file, which is " +
		"agentd.db.",

	"script": "Play this file of recorded model calls as all models, one call after the other. " +
		"See docs/record.md.",
	"script_strict": "Fail a model call whose contents are not those that the file of --script has.",
	"record_to":     "Append each model call to this file, one JSON line each: prompts and responses, never keys.",
	"model_idle": "Longest silence within a model call: a time without a byte from its provider. " +
		"Pings count; --model-timeout bounds a response of nothing else.",
	"model_tries": "How often a model call is made at most when its provider fails before it has said anything; " +
		"1 means no retries.",
	"compact_at": "Share of a model's context window above which the beginning of a conversation is summarized, " +
		"for agents that do not say themselves; 0 is never.",

	// cluster.
	"cluster_watch": "How long beats are watched for at most; replicas beat once a second.",

	// migrate.
	"migrate_sqlite_to_postgres": "Copy all of a server's folder to an empty database of PostgreSQL, and compare.",
	"migrate_to": "The database, postgres://USER@HOST/DATABASE. Default: AGENTD_STORE, or the key store; " +
		"others on this machine see flags, so a password belongs there.",
	"migrate_from": "Folder of the database, as agentd serve has it.",

	// backup, restore and check.
	"backup_data": "Folder of the database, as agentd serve has it. Default: agentd in the user's data folder.",
	"restore_force": "Replace a database that holds something. " +
		"It is kept beside the new one, under a name that is printed.",
	"keep_findings": "Keep the copy although the check of it has findings.",

	// keys.
	"keys_data": "Folder of the database, as agentd serve has it. Default: agentd in the user's data folder.",
	"keys_role": "What its holder may do: caller, observer (only reads) " +
		"or operator (also the state that all share).",
	"keys_expires": "How long it is valid, such as 720h. Default: until it is revoked.",

	// The commands that talk to a daemon.
	"api_key_file": "Send the API key, or token, of this file, which is read for each request. " +
		"Or set AGENTD_API_KEY to the key.",

	// run.
	"chat_file": "The agent and its tools, YAML or JSON.",
	"chat_local": "Run a daemon in this process, with provider keys from the environment. " +
		"It keeps its sessions in a folder.",
	"chat_attach":    "Follow the running turn of this session, and go on with it.",
	"chat_model":     "Talk to this model, without a file; default: that of .agents/config.json.",
	"chat_plain":     "Talk by lines, also on a terminal.",
	"chat_prompt":    "Run one turn with this prompt, and leave.",
	"pack_none":      "Have no tools but those of the file.",
	"pack_disable":   "Do without these built-in tools.",
	"pack_no_memory": "Leave out what AGENTS.md files say, and the list of skills.",
	"pack_permissions": "What built-in tools may do without being asked, in place of what .agents/config.json says: " +
		"ask and acceptEdits ask, allow and plan refuse, yolo lets all pass that no rule forbids.",
	"auto_words": "A file with an agent, unless --agent, --model or --session names one, and what is to be reached.",
	"auto_local": "Run a daemon in this process, with provider keys from the environment, on a folder of its own.",
	"auto_resume": "Go on with the last goal of --session, with what it has used; GOAL changes it. One that has not " +
		"ended is followed as it is.",
	"auto_model": "Ask this model, without a file: agentd auto -m MODEL GOAL.",
	"auto_output": "What standard output gets. text: the last response alone, when the goal is completed; json: the " +
		"result as one JSON object; events: each event as a line of JSON, as --json. " +
		"Default: what happens, for people, on a terminal, else events.",
	"auto_on_failure":   "After a turn that has failed: abort ends the goal, retry says the same again, skip goes on.",
	"auto_continuation": "The prompt of each turn after the first. Default: continue.",
	"goal_statuses":     "running,paused,stopped,completed,failed",
	"auto_defer":        "Agents may say when the next turn begins (schedule_next_turn).",
	"goals_status":      "Only those: running, paused, stopped, completed or failed; several with commas between.",
	"goals_answer": "proceed: the next turn begins. retry or skip: what follows a turn that has failed. " +
		"abort: the goal ends.",
	"run_file": "The agent and its tools, YAML or JSON. With --session it may be left out.",
	"run_local": "Run a daemon in this process, for this turn alone, with provider keys from the environment. " +
		"It keeps everything in memory, but with --session, --attach or --data in a folder of its own.",
	"run_data": "Folder of local sessions; one command at a time has it open. " +
		"Default: agentd/local in the user's data folder.",
	"run_session": "Continue this session; with --local it is made under this id if there is none.",
	"run_agent": "Run an agent that the daemon keeps: NAME, NAME@VERSION, or NAME@ and the beginning of its content " +
		"hash. FILE, which may be left out, has its tools. See agentd agents.",
	"run_attach": "Follow the last turn of this session, and run its tools if FILE is given.",
	"run_model":  "Ask this model, without a file: agentd run -m MODEL PROMPT.",
	"run_output": "What standard output gets. text: the last response alone, when the turn has completed; " +
		"json: the turn as one JSON object, at its end; events: each event as a line of JSON, as --json. " +
		"Default: what happens, for people, on a terminal, else events.",
	"run_state": "Set a key of the session's state. A value that is JSON counts as such, any other one as text.",
	"run_files": "Show the models this file, behind the prompt, which may then be left out: " +
		"an image, a PDF, a sound, a text; or an https, http or gs URI, which the model's provider fetches. " +
		"Its type is that of its name or content; TYPE/SUBTYPE=FILE tells it. May be given several times.",
	"run_raw": "Append the responses of providers, as they came, to this file, one JSON line each: " +
		"with --attach, of a turn that was begun so.",

	// test.
	"test_only":   "Only cases whose names this regular expression matches.",
	"test_update": "Write the golden transcripts, in place of comparing with them.",
	"test_files":  "Files with cases, NAME.test.yaml, or the files with agents beside them, NAME.yaml.",

	// mcp serve.
	"mcp_files": "Files with an agent and its tools, YAML or JSON: each is a tool.",
	"mcp_local": "Run a daemon in this process, with provider keys from the environment. " +
		"It keeps everything in memory, but with --data in a folder.",
	"mcp_data": "Folder of local sessions; one command at a time has it open.",
	"mcp_http": "Serve streamable HTTP at http://ADDR/mcp in place of standard input and output, " +
		"such as 127.0.0.1:8090. " +
		"Nothing authenticates callers: it has to be an address of this computer alone.",

	// sessions.
	"sessions_create_drop_tool_payloads": "Keep what tools are given and return for the time of their turn alone.",
	"agents_agent": "NAME, NAME@VERSION, or NAME@ and the first 8 or more digits of its " +
		"content hash.",
	"agents_apply_metadata": "A JSON object of your own, which is a part of the agent.",
	"agents_apply_name":     "Call it by this name. Default: that of the agent of the file.",
	"agents_apply_version":  "Change it only if it is at this version; 0 if there must be none.",
	"agents_diff_other":     "A file, or another version. Default: the version before.",
	"sessions_create_id":    "The id of the session; left out: the daemon makes one.",
	"sessions_create_agent": "The agent that runs in turns that bring none, until one has: one that the daemon " +
		"keeps, in the version that it has now. See agentd agents.",
	"sessions_create_metadata": "A JSON object of your own, which is kept with the session.",
	"sessions_create_label":    "Give it a label; may be given several times.",
	"sessions_create_budget": "What it may spend, such as calls=100,tokens=2000000,cost=5,time=30m. " +
		"Default: no bound but the server's.",
	"sessions_list_label": "Only sessions with this label; may be given several times.",
	"sessions_list_state": "Only sessions of this state: active, archived or all.",
	"sessions_list_status": "Only sessions whose last turn is so: " +
		"pending, running, waiting-for-client, waiting-for-input, succeeded, failed or canceled.",
	"sessions_events_follow": "Go on with what happens: " +
		"to the end of the turn with --turn, else until you interrupt it.",
	"sessions_events_cursor":   "Without --turn: begin behind the event of this cursor, which --json shows.",
	"sessions_update_metadata": "A JSON object that takes the place of the metadata; {} takes it away.",
	"sessions_update_label":    "Set a label; an empty value removes it.",
	"sessions_update_budget": "What it may spend from its beginning, " +
		"such as calls=100,tokens=2000000,cost=5,time=30m, in place of all that was said before; " +
		"none is no bound but the server's.",

	// turns and interactions.
	"turns_list_status": "Only turns that are so: " +
		"pending, running, waiting-for-client, waiting-for-input, succeeded, failed or canceled.",
	"interactions_status": "Only interactions that are so: pending, resolved, canceled or all.",
	"interactions_resolve_text": "With approve, other arguments for the tool, a JSON object; " +
		"with deny, why; with answer, the answer.",
	"approval_scopes": ",once,session,session_verb,session_tool,always",
	"interactions_resolve_scope": "With approve, how far the approval of what a tool asks holds: " +
		"once, session, session_verb, session_tool or always.",
}
