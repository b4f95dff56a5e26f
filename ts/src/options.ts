// What callers may choose.
import { refJson, type AgentRef } from "./agents.js";
import { amountOf, dayMs, sumOf, timeOf } from "./amounts.js";
import type { ReconnectPolicy } from "./backoff.js";
import type { TokenSource } from "./credential.js";
import { AgentdError } from "./errors.js";
import type { RunRequest_ExecuteRequestJson } from "./gen/agentd/v1/service_pb.js";
import type { AgentJson, BudgetJson, ToolJson } from "./gen/agentd/v1/types_pb.js";
import { enumOf, given, type JsonObject } from "./json.js";
import { promptOf, type Part } from "./parts.js";
import type { Prompter } from "./prompts.js";
import { jsonText, messageOf, newKey, wellFormed } from "./text.js";
import type { ToolSet } from "./toolset.js";
import type { Agent } from "./tree.js";
import type { Visibility } from "./types.js";

/** Keys are the caller's own provider keys. They are sent with each request and never stored. */
export interface Keys {
  gemini?: string | undefined;
  anthropic?: string | undefined;
  openai?: string | undefined;
}

/**
 * AgentdOptions configures a client. Of this and of all other options, one that is undefined is not set; docs/go.md
 * says what 0 means.
 */
export interface AgentdOptions {
  /** In place of the global fetch. */
  fetch?: typeof globalThis.fetch | undefined;
  /**
   * Proves who calls: an API key of agentd, a token of the issuer that the server trusts, or one for a session of
   * sessions.createToken; or a function that returns one, which is called for each request. A request whose token is
   * refused is made once more, and a stream whose token has expired or was revoked is set up again where it was, if the
   * function then returns another one. It must not go over a network without TLS. Not together with the headers
   * authorization and x-api-key, also of a single run: that is INVALID_REQUEST.
   */
  token?: string | TokenSource | undefined;
  /** Sent with each request. */
  headers?: HeadersInit | undefined;
  /** The caller's own provider keys. */
  keys?: Keys | undefined;
  /** How long a lost connection is tried again. */
  reconnect?: Partial<ReconnectPolicy> | undefined;
  /**
   * How long a stream may be silent before it counts as dead, in milliseconds; 0 is for ever. Default: 45,000, three
   * heartbeats of a server. This, and each other wait here, is at most as long as a timer can wait, 24.8 days, and so
   * is Infinity.
   */
  silenceMs?: number | undefined;
  /** How long a request may take that is no stream, in milliseconds; 0 is as long as it takes. Default: 30,000. */
  requestTimeoutMs?: number | undefined;
  /** How many tools run at once at most, at least 1; more wait. Default: 16. */
  maxConcurrentTools?: number | undefined;
  /**
   * Bounds the result of each tool call with the state that it writes, in bytes as JSON and without its parts. A larger
   * one becomes a tool error that says so. Default: 1,048,576, the server's own.
   */
  maxResultBytes?: number | undefined;
  /** The same for a result with its parts, as the request that carries it. Default: 4,194,304. */
  maxMessageBytes?: number | undefined;
  /**
   * Asks a person what the turns ask that this client starts by run; a run may have one of its own. attach follows a
   * turn of which somebody else may be in charge: it asks a person only where it is given a prompter itself.
   */
  prompter?: Prompter | undefined;
  /** Sets of tools by name, for agents that attach them: see mcpAttachments of LlmOptions. */
  attachments?: { readonly [mcpName: string]: ToolSet } | undefined;
}

/** @internal visibilityOf is its name on the wire; undefined is all. */
export function visibilityOf(visibility: Visibility | undefined): `VISIBILITY_${Uppercase<Visibility>}` | undefined {
  return enumOf("VISIBILITY_", visibility);
}

/** WatchOptions says how a turn is followed. */
export interface WatchOptions {
  /** Ends the iteration with its reason: the turn is left. */
  signal?: AbortSignal | undefined;
  /**
   * What becomes of the turn when it is left before its end: by the end of the loop over its events, by signal, or by
   * `await using`. "cancel" cancels it, "detach" lets it go on. Default: "cancel" for run, "detach" for attach. A turn
   * of run whose name has not come yet is cancelled in any case, for nobody could find it; not so with an
   * idempotencyKey of the caller's own, which finds it again.
   */
  onLeave?: "cancel" | "detach" | undefined;
  /** In place of the client's; null asks nobody. */
  prompter?: Prompter | null | undefined;
  /** Sent with each request, on top of the client's. */
  headers?: HeadersInit | undefined;
  /** Has each event carry how a user interface may show it. */
  display?: boolean | undefined;
}

/** AttachOptions says what to follow from where on. */
export interface AttachOptions extends WatchOptions {
  /** The turn; left out: the session's last one. */
  turnId?: string | undefined;
  /** The seq of the last event that the caller has; left out: the turn from its beginning. */
  afterSeq?: number | string | undefined;
  /**
   * Only watches: the turn runs as if this client were not there. It is asked for no tool and no person is asked; it
   * neither wakes a suspended turn nor keeps one from being suspended, or cancelled by onDisconnect. Not together with
   * a prompter.
   */
  observe?: boolean | undefined;
  /** Only events of this visibility; only together with observe. */
  visibility?: Visibility | undefined;
}

/** Budget bounds what a turn or a session may spend; what is left out, or 0, has no bound. */
export interface Budget {
  modelCalls?: number | undefined;
  tokens?: number | undefined;
  /** US dollars. */
  costUsd?: number | undefined;
  /** At most a year. */
  wallTimeMs?: number | undefined;
}

/** SeedMessage is a message of a conversation that was held elsewhere. */
export interface SeedMessage {
  role: "user" | "assistant";
  /** Not empty. */
  content: string;
}

/** RunOptions describes a turn. */
export interface RunOptions extends WatchOptions {
  /** What the user says; may be left out where there are parts. */
  prompt?: string | undefined;
  /** More of it, behind the prompt: images and other files, or text between them; at most 64. */
  parts?: readonly Part[] | undefined;
  /**
   * Yields the providers' own responses to each model call of the turn, as raw_payload_received; they are stored with the
   * session.
   */
  rawPayloads?: boolean | undefined;
  /**
   * The turn only plans: a call of a tool that changes something, or may, is not run, and the model is told so. Tools with
   * the effect read or internal run, see ToolDefinition.
   */
  planMode?: boolean | undefined;
  /** The tree. May be left out on a session that has run before: its last tree and tools then run again. */
  agent?: Agent | undefined;
  /** A tree that the server keeps, in place of agent. The client's tools run the calls of their names. */
  agentRef?: AgentRef | undefined;
  /** The session to continue; left out: a new one. One that there is not is SESSION_NOT_FOUND, unless create is set. */
  sessionId?: string | undefined;
  /** Makes the session that sessionId names, under that id, if there is none. */
  create?: boolean | undefined;
  /**
   * The id of the new turn: 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, a letter or a digit first. One that the session
   * has is CONFLICT, unless idempotencyKey makes it the same run. Left out: the server names the turn.
   */
  turnId?: string | undefined;
  /** A text behind the instruction of every agent of the turn, or where instructionMode says, at most 262,144 bytes. */
  instruction?: string | undefined;
  /** Where instruction goes: behind an agent's own, before it, or in its place; the server's is first. Default: append. */
  instructionMode?: "append" | "prepend" | "replace" | undefined;
  /**
   * The history of a new session, oldest first: models read it before the prompt. At most 512, together not longer than
   * a prompt may be. A session that there is refuses it.
   */
  seedMessages?: readonly SeedMessage[] | undefined;
  /** Runs the turn on a fork of the session that sessionId names, which stays as it is; the run has the fork's id. */
  fork?: boolean | undefined;
  /** Labels of the session, as sessions.create has them. A session that there is keeps its others. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** Who the turn is for, such as the writer of a message of a chat; nobody checks it. */
  author?: string | undefined;
  /** For the tools of the turn, see ToolContext.metadata; models do not see it. Bounded as labels are. */
  metadata?: Readonly<Record<string, string>> | undefined;
  /**
   * State to begin with. An integer beyond 2⁵³ that JavaScript has no number for can be said as JSON.rawJSON, where
   * there is that.
   */
  state?: JsonObject | undefined;
  /** What happens when the session already runs a turn. Default: reject. */
  onBusy?: "reject" | "enqueue" | "interrupt" | "inject" | "wait" | undefined;
  /** What becomes of the turn when its last client is gone. Default: continue. */
  onDisconnect?: "continue" | "cancel" | undefined;
  /** How long onDisconnect cancel waits for a client to come back, in milliseconds, at most a day. */
  disconnectGraceMs?: number | undefined;
  /** What the turn may spend. */
  budget?: Budget | undefined;
  /**
   * What the session may spend from its beginning. Where the session has a budget of its own, this only tightens it,
   * for this turn; else it holds for the turns that follow too, until another one is given.
   */
  sessionBudget?: Budget | undefined;
  /** How long a client may take for a call of a tool that has no time of its own, in milliseconds, at most a day. */
  toolTimeoutMs?: number | undefined;
  /** A repeat with the same key and content follows the turn that the first one has started. Default: a random one. */
  idempotencyKey?: string | undefined;
}

/** @internal seqOf is a position of a session as the protocol has it. */
export function seqOf(seq: number | string, name = "afterSeq"): string {
  if (/^\d+$/.test(String(seq))) {
    return String(seq);
  }
  throw new AgentdError("INVALID_REQUEST", `${name} is ${JSON.stringify(String(seq))}, must be the seq of an event`);
}

/** @internal requestOf returns the request for a turn of a tree. It throws INVALID_REQUEST for what cannot be sent. */
export function requestOf(
  o: RunOptions,
  agent: AgentJson | undefined,
  tools: ToolJson[],
): RunRequest_ExecuteRequestJson {
  if ((o.prompt ?? "") === "" && (o.parts ?? []).length === 0) {
    throw new AgentdError("INVALID_REQUEST", "a run needs a prompt, or parts; attach follows a turn that there is");
  }
  if (o.create === true && (o.sessionId ?? "") === "") {
    throw new AgentdError("INVALID_REQUEST", "create makes the session that sessionId names: there is no sessionId");
  }
  if (o.fork === true && (o.sessionId ?? "") === "") {
    throw new AgentdError("INVALID_REQUEST", "fork runs on a fork of the session that sessionId names: there is no sessionId");
  }
  if (agent !== undefined && o.agentRef !== undefined) {
    throw new AgentdError("INVALID_REQUEST", "a run has an agent and an agentRef: give one of them");
  }
  if (agent === undefined && o.agentRef === undefined && (o.sessionId ?? "") === "") {
    throw new AgentdError("INVALID_REQUEST", "a run needs an agent, an agentRef, or the sessionId of a session to continue");
  }
  try {
    return JSON.parse(JSON.stringify(messageFor(o, agent, tools))) as RunRequest_ExecuteRequestJson;
  } catch (thrown) {
    if (thrown instanceof AgentdError) {
      throw thrown;
    }
    throw new AgentdError("INVALID_REQUEST", `the run cannot be sent: ${messageOf(thrown)}`, { cause: thrown });
  }
}

function messageFor(o: RunOptions, agent: AgentJson | undefined, tools: ToolJson[]): RunRequest_ExecuteRequestJson {
  const { prompt = "" } = o;
  if (typeof prompt !== "string") {
    throw new AgentdError("INVALID_REQUEST", "the run cannot be sent: the prompt is no text");
  }
  return {
    ...given<RunRequest_ExecuteRequestJson>({
      userPrompt: wellFormed(prompt),
      userParts: promptOf(o.parts ?? []),
      rawPayloads: o.rawPayloads,
      planMode: o.planMode,
      tools,
      idempotencyKey: o.idempotencyKey || newKey(),
      onBusy: enumOf("ON_BUSY_", o.onBusy),
      onDisconnect: enumOf("ON_DISCONNECT_", o.onDisconnect),
      instruction: wellFormed(o.instruction ?? ""),
      instructionMode: enumOf("INSTRUCTION_MODE_", o.instructionMode),
      seedMessages: (o.seedMessages ?? []).map(({ role, content }) => ({ role, content: wellFormed(content) })),
      fork: o.fork,
      labels: { ...o.labels },
      author: o.author,
      metadata: { ...o.metadata },
      create: o.create,
      turnId: o.turnId,
      agent,
      agentRef: o.agentRef === undefined ? undefined : refJson(o.agentRef),
      disconnectGrace: timeOf("disconnectGraceMs", o.disconnectGraceMs, { most: dayMs }),
      toolTimeout: timeOf("toolTimeoutMs", o.toolTimeoutMs, { least: 1, most: dayMs }),
    }),
    ...(o.sessionId === undefined ? {} : { sessionId: o.sessionId }),
    ...(o.state === undefined ? {} : { initialStateJson: jsonText(o.state) }),
    ...(o.budget === undefined ? {} : { budget: budgetOf("budget", o.budget) }),
    ...(o.sessionBudget === undefined ? {} : { sessionBudget: budgetOf("sessionBudget", o.sessionBudget) }),
  };
}

/** @internal budgetOf is a budget on the wire, where 0 is no bound too. */
export function budgetOf(name: string, b: Budget): BudgetJson {
  return given({
    modelCalls: sumOf(`${name}.modelCalls`, b.modelCalls),
    tokens: sumOf(`${name}.tokens`, b.tokens),
    costUsd: amountOf(`${name}.costUsd`, b.costUsd ?? 0, { least: 0, most: Number.MAX_VALUE }),
    wallTime: timeOf(`${name}.wallTimeMs`, b.wallTimeMs, { most: 365 * dayMs }),
  });
}

/** headersOf joins headers; of two of the same name the later one holds, and one that is undefined is not set. */
export function headersOf(...all: (HeadersInit | undefined)[]): Headers {
  const out = new Headers();
  for (const some of all) {
    new Headers(definedOf(some)).forEach((value, name) => out.set(name, value));
  }
  return out;
}

/** definedOf leaves out what Headers would take for the text "undefined". */
function definedOf(some: HeadersInit = {}): HeadersInit {
  const entries = Symbol.iterator in some ? [...(some as Iterable<[string, string]>)] : Object.entries(some);
  return entries.filter(([, value]) => (value as string | undefined) !== undefined);
}

/** @internal keyHeaders are the headers that carry provider keys. */
export function keyHeaders(keys: Keys = {}): HeadersInit {
  const named = {
    "X-Agentd-Gemini-Api-Key": keys.gemini,
    "X-Agentd-Anthropic-Api-Key": keys.anthropic,
    "X-Agentd-Openai-Api-Key": keys.openai,
  };
  return Object.entries(named).flatMap(([name, key]) => (key ? [[name, key] as [string, string]] : []));
}
