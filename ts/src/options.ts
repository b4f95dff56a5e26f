// What callers may choose.
import { create, toJson, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { Transport } from "@connectrpc/connect";
import type { ReconnectPolicy } from "./backoff.js";
import { AgentdError } from "./errors.js";
import { Display_Visibility, RunRequest_ExecuteRequestSchema, type RunRequest_ExecuteRequest } from "./gen/agentd/v1/service_pb.js";
import { BudgetSchema, OnBusy, OnDisconnect, type Tool as ToolMessage } from "./gen/agentd/v1/types_pb.js";
import { promptOf, type Part } from "./parts.js";
import type { Prompter } from "./prompts.js";
import { asJson, messageOf, newKey, wellFormed } from "./text.js";
import type { Agent } from "./tree.js";

/** Keys are the caller's own provider keys. They are sent with each request and never stored. */
export interface Keys {
  gemini?: string;
  anthropic?: string;
  openai?: string;
}

/** AgentdOptions configures a client. */
export interface AgentdOptions {
  /** In place of the global fetch. */
  fetch?: typeof globalThis.fetch;
  /** Sent with each request. */
  headers?: HeadersInit;
  /** The caller's own provider keys. */
  keys?: Keys;
  /** In place of Connect over fetch; fetch is then of no use. */
  transport?: Transport;
  /** How long a lost connection is tried again. */
  reconnect?: Partial<ReconnectPolicy>;
  /** How long a stream may be silent before it counts as dead, in milliseconds. Default: 45,000, three heartbeats of a server. */
  silenceMs?: number;
  /** How long a request may take that is no stream, in milliseconds. Default: 30,000. */
  requestTimeoutMs?: number;
  /** How many tools run at once at most; more wait. Default: 16. */
  maxConcurrentTools?: number;
  /** Asks a person what turns ask; a run may have one of its own. */
  prompter?: Prompter;
}

/** Visibility is for whom an event is: for whoever uses the agent, or for whoever builds or operates it. */
export type Visibility = "public" | "private";

/** visibilityOf is its number on the wire; undefined is all. */
export function visibilityOf(visibility: Visibility | undefined): Display_Visibility {
  return visibility === undefined ? Display_Visibility.UNSPECIFIED : Display_Visibility[visibility === "public" ? "PUBLIC" : "PRIVATE"];
}

/** WatchOptions says how a turn is followed. */
export interface WatchOptions {
  /** Ends the iteration with its reason. The turn goes on, unless cancelOnAbort is set. */
  signal?: AbortSignal;
  /** Whether the abort of signal cancels the turn too. */
  cancelOnAbort?: boolean;
  /** In place of the client's. */
  prompter?: Prompter;
  /** Sent with each request, on top of the client's. */
  headers?: HeadersInit;
  /** Has each event carry how a user interface may show it. */
  display?: boolean;
}

/** AttachOptions says what to follow from where on. */
export interface AttachOptions extends WatchOptions {
  /** The turn; left out: the session's last one. */
  turnId?: string;
  /** The seq of the last event that the caller has; left out: the turn from its beginning. */
  afterSeq?: bigint | number | string;
  /** Only watches: this client is not asked for its tools, and no person is. */
  watchOnly?: boolean;
  /** Only events of this visibility; only together with watchOnly. */
  visibility?: Visibility;
}

/** Budget bounds what a turn or a session may spend; what is left out has no bound. */
export interface Budget {
  modelCalls?: number;
  tokens?: number;
  /** US dollars. */
  cost?: number;
  wallTimeMs?: number;
}

/** RunOptions describes a turn. */
export interface RunOptions extends WatchOptions {
  /** What the user says; may be left out where there are parts. */
  prompt?: string;
  /** More of it, behind the prompt: images and other files, or text between them; at most 64. */
  parts?: readonly Part[];
  /** Yields the providers' own answers to each model call of the turn, as raw_payload; they are stored with the session. */
  rawPayloads?: boolean;
  /** The tree. May be left out on a session that has run before: its last tree and tools then run again. */
  agent?: Agent;
  /** The session to continue; left out: a new one. */
  sessionId?: string;
  /** State to begin with. */
  state?: JsonObject;
  /** What happens when the session already runs a turn. Default: reject. */
  onBusy?: "reject" | "enqueue" | "interrupt" | "inject";
  /** What becomes of the turn when its last client is gone. Default: continue. */
  onDisconnect?: "continue" | "cancel";
  /** How long onDisconnect cancel waits for a client to come back, in milliseconds. */
  disconnectGraceMs?: number;
  /** What the turn may spend. */
  budget?: Budget;
  /** What the session may spend from its beginning. */
  sessionBudget?: Budget;
  /** How long a client may take for a call of a tool that has no time of its own, in milliseconds. */
  toolTimeoutMs?: number;
  /** A repeat with the same key and content follows the turn that the first one has started. Default: a random one. */
  idempotencyKey?: string;
}

const busy = { reject: OnBusy.REJECT, enqueue: OnBusy.ENQUEUE, interrupt: OnBusy.INTERRUPT, inject: OnBusy.INJECT } as const;
const disconnect = { continue: OnDisconnect.CONTINUE, cancel: OnDisconnect.CANCEL } as const;

/** seqOf is a position of a session as the protocol has it. */
export function seqOf(seq: bigint | number | string): bigint {
  try {
    return BigInt(seq);
  } catch (thrown) {
    throw new AgentdError("INVALID_REQUEST", `afterSeq is ${JSON.stringify(seq)}, must be the seq of an event`, { cause: thrown });
  }
}

/** requestOf returns the request for a turn. It throws INVALID_REQUEST for what cannot be sent. */
export function requestOf(o: RunOptions, tools: ToolMessage[]): RunRequest_ExecuteRequest {
  if ((o.prompt ?? "") === "" && (o.parts ?? []).length === 0) {
    throw new AgentdError("INVALID_REQUEST", "a run needs a prompt, or parts; attach follows a turn that there is");
  }
  if (o.agent === undefined && o.sessionId === undefined) {
    throw new AgentdError("INVALID_REQUEST", "a run needs an agent, or the sessionId of a session to continue");
  }
  try {
    const request = messageFor(o, tools);
    toJson(RunRequest_ExecuteRequestSchema, request);
    return request;
  } catch (thrown) {
    throw new AgentdError("INVALID_REQUEST", `the run cannot be sent: ${messageOf(thrown)}`, { cause: thrown });
  }
}

function messageFor(o: RunOptions, tools: ToolMessage[]): RunRequest_ExecuteRequest {
  return create(RunRequest_ExecuteRequestSchema, {
    userPrompt: wellFormed(o.prompt ?? ""),
    userParts: promptOf(o.parts ?? []),
    rawPayloads: o.rawPayloads ?? false,
    tools,
    idempotencyKey: o.idempotencyKey ?? newKey(),
    onBusy: o.onBusy === undefined ? OnBusy.UNSPECIFIED : busy[o.onBusy],
    onDisconnect: o.onDisconnect === undefined ? OnDisconnect.UNSPECIFIED : disconnect[o.onDisconnect],
    ...(o.agent === undefined ? {} : { agent: o.agent }),
    ...(o.sessionId === undefined ? {} : { sessionId: o.sessionId }),
    ...(o.state === undefined ? {} : { initialState: asJson(o.state) as JsonObject }),
    ...(o.disconnectGraceMs === undefined ? {} : { disconnectGrace: durationFromMs(o.disconnectGraceMs) }),
    ...(o.toolTimeoutMs === undefined ? {} : { toolTimeout: durationFromMs(o.toolTimeoutMs) }),
    ...(o.budget === undefined ? {} : { budget: budgetOf(o.budget) }),
    ...(o.sessionBudget === undefined ? {} : { sessionBudget: budgetOf(o.sessionBudget) }),
  });
}

function budgetOf(b: Budget): MessageInitShape<typeof BudgetSchema> {
  return {
    modelCalls: BigInt(b.modelCalls ?? 0),
    tokens: BigInt(b.tokens ?? 0),
    cost: b.cost ?? 0,
    ...(b.wallTimeMs === undefined ? {} : { wallTime: durationFromMs(b.wallTimeMs) }),
  };
}

/** headersOf joins headers; of two of the same name the later one holds. */
export function headersOf(...all: (HeadersInit | undefined)[]): Headers {
  const out = new Headers();
  for (const some of all) {
    new Headers(some).forEach((value, name) => out.set(name, value));
  }
  return out;
}

/** keyHeaders are the headers that carry provider keys. */
export function keyHeaders(keys: Keys = {}): HeadersInit {
  const named = { "X-Agentd-Gemini-Api-Key": keys.gemini, "X-Agentd-Anthropic-Api-Key": keys.anthropic, "X-Agentd-Openai-Api-Key": keys.openai };
  return Object.entries(named).flatMap(([name, key]) => (key ? [[name, key] as [string, string]] : []));
}
