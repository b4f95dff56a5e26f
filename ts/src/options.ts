// What callers may choose.
import { create, toJson, type JsonObject, type MessageInitShape } from "@bufbuild/protobuf";
import type { Transport } from "@connectrpc/connect";
import { amountOf, dayMs, sumOf, timeOf } from "./amounts.js";
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

/** AgentdOptions configures a client. Of this and of all other options, one that is undefined is not set. */
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
  /**
   * How long a stream may be silent before it counts as dead, in milliseconds, at least 1. Default: 45,000, three heartbeats of a
   * server. This, and each other wait here, is at most as long as a timer can wait, 24.8 days, and so is Infinity.
   */
  silenceMs?: number;
  /** How long a request may take that is no stream, in milliseconds, at least 1. Default: 30,000. */
  requestTimeoutMs?: number;
  /** How many tools run at once at most; more wait. Default: 16. */
  maxConcurrentTools?: number;
  /**
   * Bounds the result of each tool call with the state that it writes, in bytes as JSON and without its parts, at least 1. A larger one
   * becomes a tool error that says so. Default: 1,048,576, the server's own.
   */
  maxResultBytes?: number;
  /** The same for a result with its parts, as the request that carries it. Default: 4,194,304. */
  maxMessageBytes?: number;
  /**
   * Asks a person what the turns ask that this client starts by run; a run may have one of its own. attach follows a turn of which
   * somebody else may be in charge: it asks a person only where it is given a prompter itself.
   */
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
  /**
   * Ends the iteration with its reason. The turn goes on, unless cancelOnAbort is set. One whose name has not come yet is cancelled,
   * for nobody could find it; with an idempotencyKey of the caller's own the same run finds it.
   */
  signal?: AbortSignal;
  /** Whether the abort of signal cancels the turn too. */
  cancelOnAbort?: boolean;
  /** In place of the client's; null asks nobody. */
  prompter?: Prompter | null;
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
  /**
   * Only watches: the turn runs as if this client were not there. It is asked for no tool and no person is asked; it neither wakes
   * a suspended turn nor keeps one from being suspended, or cancelled by onDisconnect. Not together with a prompter.
   */
  observe?: boolean;
  /** The same by its first name. */
  watchOnly?: boolean;
  /** Only events of this visibility; only together with observe. */
  visibility?: Visibility;
}

/** Budget bounds what a turn or a session may spend; what is left out has no bound. A bound is above 0. */
export interface Budget {
  modelCalls?: number;
  tokens?: number;
  /** US dollars. */
  cost?: number;
  /** At most a year. */
  wallTimeMs?: number;
}

/** RunOptions describes a turn. */
export interface RunOptions extends WatchOptions {
  /** What the user says; may be left out where there are parts. */
  prompt?: string;
  /** More of it, behind the prompt: images and other files, or text between them; at most 64. */
  parts?: readonly Part[];
  /** Yields the providers' own answers to each model call of the turn, as raw_payload_received; they are stored with the session. */
  rawPayloads?: boolean;
  /** The tree. May be left out on a session that has run before: its last tree and tools then run again. */
  agent?: Agent;
  /** The session to continue; left out: a new one. One that there is not is SESSION_NOT_FOUND, unless create is set. */
  sessionId?: string;
  /** Makes the session that sessionId names, under that id, if there is none. */
  create?: boolean;
  /**
   * The id of the new turn: 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, a letter or a digit first. One that the session has is CONFLICT,
   * unless idempotencyKey makes it the same run. Left out: the server names the turn.
   */
  turnId?: string;
  /** State to begin with. */
  state?: JsonObject;
  /** What happens when the session already runs a turn. Default: reject. */
  onBusy?: "reject" | "enqueue" | "interrupt" | "inject";
  /** What becomes of the turn when its last client is gone. Default: continue. */
  onDisconnect?: "continue" | "cancel";
  /** How long onDisconnect cancel waits for a client to come back, in milliseconds, at most a day. */
  disconnectGraceMs?: number;
  /** What the turn may spend. */
  budget?: Budget;
  /** What the session may spend from its beginning. */
  sessionBudget?: Budget;
  /** How long a client may take for a call of a tool that has no time of its own, in milliseconds, at most a day. */
  toolTimeoutMs?: number;
  /** A repeat with the same key and content follows the turn that the first one has started. Default: a random one. */
  idempotencyKey?: string;
}

const busy = { reject: OnBusy.REJECT, enqueue: OnBusy.ENQUEUE, interrupt: OnBusy.INTERRUPT, inject: OnBusy.INJECT } as const;
const disconnect = { continue: OnDisconnect.CONTINUE, cancel: OnDisconnect.CANCEL } as const;

/** seqOf is a position of a session as the protocol has it. */
export function seqOf(seq: bigint | number | string): bigint {
  // BigInt takes an empty text for 0, the beginning of the session.
  if (/^\d+$/.test(String(seq))) {
    return BigInt(seq);
  }
  throw new AgentdError("INVALID_REQUEST", `afterSeq is ${JSON.stringify(String(seq))}, must be the seq of an event`);
}

/** requestOf returns the request for a turn. It throws INVALID_REQUEST for what cannot be sent. */
export function requestOf(o: RunOptions, tools: ToolMessage[]): RunRequest_ExecuteRequest {
  if ((o.prompt ?? "") === "" && (o.parts ?? []).length === 0) {
    throw new AgentdError("INVALID_REQUEST", "a run needs a prompt, or parts; attach follows a turn that there is");
  }
  if (o.create === true && (o.sessionId ?? "") === "") {
    throw new AgentdError("INVALID_REQUEST", "create makes the session that sessionId names: there is no sessionId");
  }
  if (o.agent === undefined && o.sessionId === undefined) {
    throw new AgentdError("INVALID_REQUEST", "a run needs an agent, or the sessionId of a session to continue");
  }
  try {
    const request = messageFor(o, tools);
    toJson(RunRequest_ExecuteRequestSchema, request);
    return request;
  } catch (thrown) {
    if (thrown instanceof AgentdError) {
      throw thrown;
    }
    throw new AgentdError("INVALID_REQUEST", `the run cannot be sent: ${messageOf(thrown)}`, { cause: thrown });
  }
}

function messageFor(o: RunOptions, tools: ToolMessage[]): RunRequest_ExecuteRequest {
  const disconnectGrace = timeOf("disconnectGraceMs", o.disconnectGraceMs, { least: 0, most: dayMs });
  const toolTimeout = timeOf("toolTimeoutMs", o.toolTimeoutMs, { least: 1, most: dayMs });
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
    create: o.create ?? false,
    turnId: o.turnId ?? "",
    ...(disconnectGrace === undefined ? {} : { disconnectGrace }),
    ...(toolTimeout === undefined ? {} : { toolTimeout }),
    ...(o.budget === undefined ? {} : { budget: budgetOf("budget", o.budget) }),
    ...(o.sessionBudget === undefined ? {} : { sessionBudget: budgetOf("sessionBudget", o.sessionBudget) }),
  });
}

/** budgetOf is a budget on the wire, where 0 is no bound: a sum that has come down to 0 must not be taken for that. */
function budgetOf(name: string, b: Budget): MessageInitShape<typeof BudgetSchema> {
  const wallTime = timeOf(`${name}.wallTimeMs`, b.wallTimeMs, { least: 1, most: 365 * dayMs });
  return {
    modelCalls: sumOf(`${name}.modelCalls`, b.modelCalls),
    tokens: sumOf(`${name}.tokens`, b.tokens),
    costUsd: b.cost === undefined ? 0 : amountOf(`${name}.cost`, b.cost, { least: Number.MIN_VALUE, most: Number.MAX_VALUE }),
    ...(wallTime === undefined ? {} : { wallTime }),
  };
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

/** keyHeaders are the headers that carry provider keys. */
export function keyHeaders(keys: Keys = {}): HeadersInit {
  const named = { "X-Agentd-Gemini-Api-Key": keys.gemini, "X-Agentd-Anthropic-Api-Key": keys.anthropic, "X-Agentd-Openai-Api-Key": keys.openai };
  return Object.entries(named).flatMap(([name, key]) => (key ? [[name, key] as [string, string]] : []));
}
