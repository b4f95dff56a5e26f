// What happens in a turn.
import type { AgentdError, ErrorCode } from "./errors.js";
import {
  callEndedOf,
  callOf,
  codeOf,
  deltaText,
  displayOf,
  errorOf,
  interactionOf,
  partsOf,
  receiptOf,
  resultPartsOf,
  structuredOf,
  usageOfEnd,
  warningsOf,
} from "./fromjson.js";
import type { LineageJson, RunResponse_EndResponseJson, RunResponseJson } from "./gen/agentd/v1/service_pb.js";
import { goalChangeOf, type GoalChange } from "./goals.js";
import { bytesOf, dateOf, msOf, numberOf, wordOf, type JsonObject, type JsonValue } from "./json.js";
import type {
  HistoryCompacted,
  ModelCallEnded,
  ModelCallFellBack,
  ProviderToolsUsed,
  RawPayloadReceived,
} from "./modelevents.js";
import type { Part, ResultPart } from "./parts.js";
import { jsonValue } from "./text.js";
import type { CancelReceipt, Display, Interaction, Open, Warning } from "./types.js";
import type { Usage } from "./usage.js";

/** AgentKind is what an agent of a tree is. */
export type AgentKind = Open<"unspecified" | "llm" | "sequential" | "parallel" | "loop" | "remote">;

/**
 * AgentOutcome is how an agent ended: `transferred` when it has handed the conversation over, `failed` and `canceled`
 * with its turn.
 */
export type AgentOutcome = Open<"unspecified" | "completed" | "transferred" | "failed" | "canceled">;

/** RemoteSession tells how a remote agent runs on its backend. What the backend has not made yet is empty. */
export interface RemoteSession {
  readonly agentPath: readonly string[];
  readonly backend: string;
  readonly remoteAgentId: string;
  readonly remoteSessionId: string;
  /** The SHA-256, in hex, of what the backend's agent was made of. */
  readonly specHash: string;
  /** Where in the backend's session the agent has come to. */
  readonly cursor: string;
  /** Why the backend has stopped; `unspecified` where it has not. */
  readonly terminal: Open<"unspecified" | "end_turn" | "requires_action" | "terminated">;
  /** The same for people. */
  readonly reason: string;
}

/** EventBase is what all events have. */
export interface EventBase {
  /**
   * The event's place in the session: what afterSeq takes. It rises, but not by one. 0 on an event of this client, and
   * on the first pieces of a text that comes in several.
   */
  readonly seq: number;
  /** The turn it is about. */
  readonly turnId: string;
  /** When it happened by the server's clock; undefined for text that is on its way, and for events of this client. */
  readonly time: Date | undefined;
  /** Whether it happened before the server saw this client, or saw it again. */
  readonly replayed: boolean;
  /** How a user interface may show it; only where display was asked for. */
  readonly display: Display | undefined;
  /** Which agent that another one has called it is of; not there for the tree of the turn itself. */
  readonly lineage?: Lineage | undefined;
}

/** Lineage is where an event comes from. */
export interface Lineage {
  /** The session that started the event's session; "" where the event is of an agent within the turn of its caller. */
  readonly parentSessionId: string;
  /** The names of the calls that lead to it, from the outermost, with dots between them. */
  readonly branch: string;
  /** How many calls these are. */
  readonly depth: number;
  /** The place of the event in a tree of sessions; 0 where it is of the session alone. */
  readonly position: number;
}

/** ToolCall is a call of a tool. */
export interface ToolCall {
  /** Unique within the session. */
  readonly toolCallId: string;
  readonly toolName: string;
  /** The arguments, a JSON object, in the model's own text. */
  readonly toolInput: string;
  /** From the root of the tree to the agent that calls. */
  readonly agentPath: readonly string[];
  /** The trace that a call for this client is part of, as W3C's Trace Context has it; not set for none. */
  readonly traceparent?: string;
  readonly tracestate?: string;
  /** RunOptions.metadata of the turn, in a call for this client; not set for none. */
  readonly metadata?: Readonly<Record<string, string>>;
}

/** EventBody is what an event is about; its type says which, in the protocol's words. */
export type EventBody =
  /** A prompt waits for the turns before it. */
  | {
      readonly type: "turn_queued";
      readonly sessionId: string;
      readonly userPrompt: string;
      readonly userParts: readonly Part[];
      readonly ahead: number;
      readonly inject: boolean;
      /** Whose prompt it is, as the server knows them. */
      readonly createdBy: string;
    }
  /** The turn runs. */
  | {
      readonly type: "turn_started";
      readonly sessionId: string;
      readonly warnings: readonly Warning[];
      /** The goal that the turn is of, empty for none, and its number there, from 1. */
      readonly goalId: string;
      readonly goalTurn: number;
    }
  /** A piece of an agent's text, or of its thinking. last is true once per agent and turn in which it spoke. */
  | {
      readonly type: "output_chunk";
      readonly content: string;
      readonly isThought: boolean;
      readonly last: boolean;
      readonly messageId: string;
      readonly agentPath: readonly string[];
    }
  /**
   * Text is void and starts over under the same id. An empty messageId means all unfinished messages; see Transcript.
   */
  | { readonly type: "message_retracted"; readonly messageId: string; readonly agentPath: readonly string[] }
  /**
   * Session state: first the whole of it, if there is any, later what changed. A key whose value is null has been
   * removed. Numbers are JavaScript's: of integers beyond 2⁵³, and of others with more than 17 digits, stateDelta has
   * the nearest, and Number.MAX_VALUE for what is beyond all of them. stateDeltaJson is the same as JSON text, with
   * every digit.
   */
  | { readonly type: "state_update"; readonly stateDelta: JsonObject; readonly stateDeltaJson: string }
  /** A tool of this client is asked for. When a call is asked again, its tool runs and nothing is told. */
  | ({ readonly type: "tool_call" } & ToolCall)
  /** Another client is asked for a tool, or was. */
  | ({ readonly type: "tool_call_announced" } & ToolCall)
  /** Nobody waits for a tool any more. */
  | { readonly type: "tool_call_canceled"; readonly toolCallId: string; readonly reason: string }
  /**
   * A tool call waits, and no client that is attached has its tool. The call is asked for once one attaches that has
   * it.
   */
  | {
      readonly type: "tool_call_unserved";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly agentPath: readonly string[];
      /** When the turn ends if none attaches. */
      readonly expireTime: Date | undefined;
    }
  /** A tool call has its result, of whichever client; either output or error is set. */
  | {
      readonly type: "tool_call_answered";
      readonly toolCallId: string;
      readonly toolName: string;
      readonly output: string | undefined;
      readonly error: string | undefined;
      /** What the model sees behind output, such as images. */
      readonly parts: readonly ResultPart[];
      readonly agentPath: readonly string[];
      /** Whose client has returned the result, as the server knows them. */
      readonly createdBy: string;
      /** What of the result did not hold, such as state that its tool may not write. */
      readonly warnings: readonly Warning[];
    }
  /** All of a message was in output_chunk; nothing of it is retracted any more. */
  | {
      readonly type: "message_completed";
      readonly messageId: string;
      readonly agentPath: readonly string[];
      readonly textBytes: number;
      readonly thoughtBytes: number;
    }
  /**
   * An agent of the tree has started; those of a loop start again with each iteration. `model` is empty where it asks
   * none.
   */
  | {
      readonly type: "agent_started";
      readonly agentPath: readonly string[];
      readonly kind: AgentKind;
      readonly model: string;
    }
  /** An agent has ended, at the latest with its turn; each that has started does. */
  | { readonly type: "agent_ended"; readonly agentPath: readonly string[]; readonly outcome: AgentOutcome }
  /** An agent has handed the conversation over to another one, which goes on with it. */
  | { readonly type: "transferred"; readonly agentPath: readonly string[]; readonly toAgentPath: readonly string[] }
  /** An agent runs on a backend of the server: something was made there, or the backend has stopped. */
  | ({ readonly type: "remote_session" } & RemoteSession)
  /** A user has said something to the running turn. */
  | {
      readonly type: "message_injected";
      readonly userPrompt: string;
      readonly userParts: readonly Part[];
      readonly queuedTurnId: string;
      /** Whose prompt it is, as the server knows them. */
      readonly createdBy: string;
    }
  /** A model call has failed before any of its text was there, and is made again. */
  | {
      readonly type: "model_call_retried";
      readonly messageId: string;
      readonly agentPath: readonly string[];
      readonly attempt: number;
      readonly waitMs: number;
      readonly code: ErrorCode;
      readonly message: string;
    }
  /** A model has failed before any of its text was there, and another one is called. */
  | ({ readonly type: "model_call_fell_back" } & ModelCallFellBack)
  /** A model call is over. */
  | ({ readonly type: "model_call_ended" } & ModelCallEnded)
  /** A model's own provider has run tools, or a message cites sources. */
  | ({ readonly type: "provider_tools_used" } & ProviderToolsUsed)
  /** A provider's own response; only where rawPayloads was asked for. */
  | ({ readonly type: "raw_payload_received" } & RawPayloadReceived)
  /** An agent's model is from now on told a summary of the beginning of the conversation. */
  | ({ readonly type: "history_compacted" } & HistoryCompacted)
  /** Something has happened to a goal of the session. */
  | ({ readonly type: "goal" } & GoalChange)
  /** A person is asked. */
  | { readonly type: "interaction_requested"; readonly interaction: Interaction }
  /** A person has answered, or need not any more. */
  | { readonly type: "interaction_resolved"; readonly interaction: Interaction }
  /** Something went wrong that did not end the turn, such as a tool's result that the server has refused. */
  | { readonly type: "error"; readonly error: AgentdError }
  /** There is no connection to the server, and it is tried again. No event of the turn is lost by it. */
  | { readonly type: "connection_lost"; readonly error: AgentdError }
  /** The connection is back, after so long and so many attempts. */
  | { readonly type: "connection_restored"; readonly afterMs: number; readonly attempts: number }
  /**
   * The connection that was lost is tried no more; the iteration throws what error says. The turn may go on without
   * this client.
   */
  | {
      readonly type: "connection_abandoned";
      readonly afterMs: number;
      readonly attempts: number;
      readonly error: AgentdError;
    }
  /**
   * Something that this client is too old to know: its name in the protocol, and what it holds as the protocol's JSON
   * has it.
   */
  | { readonly type: "unknown"; readonly name: string; readonly data: JsonValue }
  /** The turn is over and has not failed; the last event. A turn that failed is thrown instead. */
  | ({ readonly type: "end" } & End);

/** End is how a turn ended that did not fail. */
export interface End {
  /** Whether the agent tree finished naturally; false when somebody has stopped the turn. */
  readonly completed: boolean;
  /** Why it ended, when it did not end by itself. */
  readonly reason: string;
  /** What it used. A count of more than 2,147,483,647 comes as that; the Turn of the server has all of it. */
  readonly usage: Usage | undefined;
  /** What was stopped; undefined when nobody stopped it. */
  readonly receipt: CancelReceipt | undefined;
  /** The last response as a value, when the agent that gave it has an output schema: JSON.parse of structuredText. */
  readonly structuredOutput: JsonValue | undefined;
  /** The same as the model wrote it, for readers to whom the numbers of JavaScript are not enough. */
  readonly structuredText: string | undefined;
}

/**
 * Event is one thing that happened in a turn: a plain object, of which JSON.stringify makes JSON. There will be more
 * types: a program leaves those out that it does not know.
 */
export type Event = EventBase & EventBody;

/** @internal eventOf reads a message of the server; undefined for heartbeats and for what tells nothing. */
export function eventOf(message: RunResponseJson): Event | undefined {
  const body = bodyOf(message);
  return (
    body && {
      ...body,
      seq: numberOf(message.seq),
      turnId: message.turnId ?? "",
      time: dateOf(message.time),
      replayed: message.replayed ?? false,
      display: displayOf(message.display),
      ...(message.lineage && { lineage: lineageOf(message.lineage) }),
    }
  );
}

function lineageOf({ parentSessionId = "", branch = "", depth = 0, position }: LineageJson): Lineage {
  return { parentSessionId, branch, depth, position: numberOf(position) };
}

/** @internal ownEvent is an event that this client tells of. */
export function ownEvent(turnId: string, body: EventBody): Event {
  return { ...body, seq: 0, turnId, time: undefined, replayed: false, display: undefined };
}

/** What messages have besides what they tell. */
const envelope: ReadonlySet<string> = new Set(["seq", "turnId", "time", "replayed", "display", "lineage"]);

function bodyOf(message: RunResponseJson): EventBody | undefined {
  for (const name of Object.keys(message)) {
    if (Object.hasOwn(readers, name)) {
      const read = readers[name as keyof typeof readers] as (value: unknown) => EventBody | undefined;
      return read(message[name as keyof typeof readers]);
    }
  }
  const name = Object.keys(message).find((key) => !envelope.has(key));
  if (name === undefined) {
    return undefined;
  }
  return { type: "unknown", name, data: (message as JsonObject)[name] ?? null };
}

type Told = Omit<Required<RunResponseJson>, "seq" | "turnId" | "time" | "replayed" | "display" | "lineage">;

/** What each kind of message tells. */
const readers: { [K in keyof Told]: (value: Told[K]) => EventBody | undefined } = {
  heartbeat: () => undefined,
  turnQueued: ({ sessionId = "", userPrompt = "", userParts, ahead = 0, inject = false, createdBy = "" }) => {
    return { type: "turn_queued", sessionId, userPrompt, userParts: partsOf(userParts), ahead, inject, createdBy };
  },
  execute: ({ sessionId = "", warnings, goalId = "", goalTurn }) => {
    return { type: "turn_started", sessionId, warnings: warningsOf(warnings), goalId, goalTurn: numberOf(goalTurn) };
  },
  outputChunk: ({ content = "", isThought = false, last = false, messageId = "", agentPath = [] }) => {
    return { type: "output_chunk", content, isThought, last, messageId, agentPath };
  },
  messageRetracted: ({ messageId = "", agentPath = [] }) => ({ type: "message_retracted", messageId, agentPath }),
  stateUpdate: (update) => {
    const stateDeltaJson = deltaText(update);
    return { type: "state_update", stateDelta: jsonValue(stateDeltaJson) as JsonObject, stateDeltaJson };
  },
  toolCall: (call) => ({ type: "tool_call", ...callOf(call) }),
  toolCallAnnounced: (call) => ({ type: "tool_call_announced", ...callOf(call) }),
  toolCallCanceled: ({ toolCallId = "", reason = "" }) => ({ type: "tool_call_canceled", toolCallId, reason }),
  toolCallUnserved: ({ toolCallId = "", toolName = "", agentPath = [], expireTime }) => {
    return { type: "tool_call_unserved", toolCallId, toolName, agentPath, expireTime: dateOf(expireTime) };
  },
  toolCallAnswered: ({ toolCallId = "", toolName = "", output, error, parts, agentPath = [], ...more }) => {
    const { createdBy = "", warnings } = more;
    const result = { output, error, parts: resultPartsOf(parts), createdBy, warnings: warningsOf(warnings) };
    return { type: "tool_call_answered", toolCallId, toolName, agentPath, ...result };
  },
  messageCompleted: ({ messageId = "", agentPath = [], textBytes, thoughtBytes }) => {
    const bytes = { textBytes: numberOf(textBytes), thoughtBytes: numberOf(thoughtBytes) };
    return { type: "message_completed", messageId, agentPath, ...bytes };
  },
  agentStarted: ({ agentPath = [], kind, model = "" }) => {
    return { type: "agent_started", agentPath, kind: wordOf("AGENT_KIND_", kind), model };
  },
  agentEnded: ({ agentPath = [], outcome }) => {
    return { type: "agent_ended", agentPath, outcome: wordOf("OUTCOME_", outcome) };
  },
  transferred: ({ agentPath = [], toAgentPath = [] }) => ({ type: "transferred", agentPath, toAgentPath }),
  remoteSession: ({ sessionId: _, agentPath = [], terminal, ...of }) => {
    const { backend = "", remoteAgentId = "", remoteSessionId = "", specHash = "", cursor = "", reason = "" } = of;
    const ids = { remoteAgentId, remoteSessionId, specHash, cursor };
    return { type: "remote_session", agentPath, backend, ...ids, terminal: wordOf("TERMINAL_", terminal), reason };
  },
  messageInjected: ({ userPrompt = "", userParts, queuedTurnId = "", createdBy = "" }) => {
    return { type: "message_injected", userPrompt, userParts: partsOf(userParts), queuedTurnId, createdBy };
  },
  modelCallRetried: ({ messageId = "", agentPath = [], attempt = 0, wait, code, message = "" }) => {
    return {
      type: "model_call_retried",
      messageId,
      agentPath,
      attempt,
      waitMs: msOf(wait) ?? 0,
      code: codeOf(code),
      message,
    };
  },
  modelCallFellBack: ({ messageId = "", agentPath = [], model = "", nextModel = "", code, message = "" }) => {
    return { type: "model_call_fell_back", messageId, agentPath, model, nextModel, code: codeOf(code), message };
  },
  modelCallEnded: (ended) => ({ type: "model_call_ended", ...callEndedOf(ended) }),
  providerToolsUsed: ({ messageId = "", agentPath = [], uses = [], citations = [] }) => {
    return {
      type: "provider_tools_used",
      messageId,
      agentPath,
      uses: uses.map(({ id = "", toolName = "", input = "", output = "", error = "" }) => ({
        id,
        toolName,
        input,
        output,
        error,
      })),
      citations: citations.map(({ uri = "", title = "", citedText = "", startByte = 0, endByte = 0 }) => {
        return { uri, title, citedText, startByte, endByte };
      }),
    };
  },
  rawPayloadReceived: ({
    messageId = "",
    agentPath = [],
    attempt = 0,
    provider = "",
    status = 0,
    contentType = "",
    ...more
  }) => {
    const { body, truncated = false } = more;
    const from = { messageId, agentPath, attempt, provider, status, contentType };
    return { type: "raw_payload_received", ...from, body: bytesOf(body), truncated };
  },
  historyCompacted: ({ agentPath = [], summary = "", throughSeq, reason, promptTokens, contextTokens }) => {
    return {
      type: "history_compacted",
      agentPath,
      summary,
      throughSeq: numberOf(throughSeq),
      reason: wordOf("REASON_", reason),
      promptTokens: numberOf(promptTokens),
      contextTokens: numberOf(contextTokens),
    };
  },
  goal: (change) => ({ type: "goal", ...goalChangeOf(change) }),
  interactionRequested: ({ interaction }) =>
    interaction && { type: "interaction_requested", interaction: interactionOf(interaction) },
  interactionResolved: ({ interaction }) =>
    interaction && { type: "interaction_resolved", interaction: interactionOf(interaction) },
  error: (error) => ({ type: "error", error: errorOf(error) }),
  end: (end) => ({ type: "end", ...endOf(end) }),
};

function endOf({
  completed = false,
  reason = "",
  usageSummary,
  receipt,
  structuredOutput,
}: RunResponse_EndResponseJson): End {
  return {
    completed,
    reason,
    usage: usageOfEnd(usageSummary),
    receipt: receiptOf(receipt),
    ...structuredOf(structuredOutput),
  };
}
