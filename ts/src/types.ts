// What the server keeps, as plain objects. Each word of a union may have company from a newer server: such a word comes
// as it is.
import type { AgentRef } from "./agents.js";
import type { ErrorCode } from "./errors.js";
import type { ToolCall } from "./events.js";
import type { JsonObject, JsonValue } from "./json.js";
import type { ModelCallEnded } from "./modelevents.js";
import type { Budget } from "./options.js";
import type { Part } from "./parts.js";
import type { Generation } from "./tree.js";
import type { Usage } from "./usage.js";

/** Open has a union of words take others too. */
export type Open<Words extends string> = Words | (string & {});

/** SessionState is what has become of a session. */
export type SessionState = Open<"unspecified" | "active" | "archived">;

/** TurnStatus is how a turn is. */
export type TurnStatus = Open<
  | "unspecified"
  | "pending"
  | "running"
  | "waiting_for_client"
  | "waiting_for_input"
  | "succeeded"
  | "failed"
  | "canceled"
>;

/** StopReason is why a model ended a response. */
export type StopReason = Open<"unspecified" | "stop" | "max_tokens" | "content_blocked" | "other">;

/** Session is a conversation of many turns. What the server does not say is empty, 0 or undefined, here and below. */
export interface Session {
  readonly id: string;
  readonly state: SessionState;
  readonly labels: Readonly<Record<string, string>>;
  /** What the caller calls it. */
  readonly clientRef: string;
  /** Who has made it, as the server knows them. */
  readonly createdBy: string;
  readonly createTime: Date | undefined;
  readonly updateTime: Date | undefined;
  readonly usage: Usage | undefined;
  /** What it may spend, from its beginning; undefined for no bound but the server's. */
  readonly budget: Readonly<Budget> | undefined;
  /** Rises with each change; what update takes. */
  readonly version: number;
  /** The session that it was forked from. */
  readonly forkedFrom: string;
  /** The seq of the last event that the fork has of the other session. */
  readonly forkedThroughSeq: number;
  readonly lastTurnId: string;
  readonly lastTurnStatus: TurnStatus;
  readonly lastSeq: number;
  /** Whether its log was removed. */
  readonly purged: boolean;
  /** True when what tools were given and returned is not kept after its turn. */
  readonly dropToolPayloads: boolean;
  /** The caller's own object; undefined for none. */
  readonly metadata: Readonly<Record<string, unknown>> | undefined;
  /** The agent that it was made with; undefined without one. */
  readonly agentRef: AgentRef | undefined;
}

/** Turn is what one prompt sets off. */
export interface Turn {
  readonly id: string;
  readonly sessionId: string;
  readonly status: TurnStatus;
  /** Why it is so, for people. */
  readonly statusMessage: string;
  /** Why it failed; undefined when it has not. */
  readonly errorCode: ErrorCode | undefined;
  readonly userPrompt: string;
  /** Whose prompt it is, as the server knows them. */
  readonly createdBy: string;
  /** Who it is for, as the caller says; see RunOptions.author. */
  readonly author: string;
  /** What the last agent said at last. */
  readonly outputText: string;
  readonly usage: Usage | undefined;
  readonly createTime: Date | undefined;
  readonly startTime: Date | undefined;
  readonly endTime: Date | undefined;
  readonly durationMs: number | undefined;
  /** The seq of the last event before the turn. */
  readonly afterSeq: number;
  /** Calls that have no result yet. */
  readonly pendingToolCalls: readonly ToolCall[];
  /** The turn that was told the prompt, if it was told to a running one. */
  readonly injectedInto: string;
  /** What was stopped; undefined when nobody stopped it. */
  readonly receipt: CancelReceipt | undefined;
  /** The last response as a value, when the agent that gave it has an output schema: JSON.parse of structuredText. */
  readonly structuredOutput: JsonValue | undefined;
  /** The same as the model wrote it, for readers to whom the numbers of JavaScript are not enough. */
  readonly structuredText: string | undefined;
  readonly stopReason: StopReason;
  /** The model that gave the last response. */
  readonly model: string;
  /** Questions to people without an answer. */
  readonly pendingInteractions: readonly Interaction[];
  /** The files of the prompt; only where they were asked for. */
  readonly userParts: readonly Part[];
}

/** Warning says what of a request did not hold, though the rest was done. */
export interface Warning {
  /** A word for programs. */
  readonly code: string;
  /** The field that it is about, by its path. */
  readonly field: string;
  /** The same for people. */
  readonly message: string;
}

/** InteractionKind is what a person is asked for. */
export type InteractionKind = Open<"unspecified" | "approval" | "clarification" | "input">;

/** InteractionStatus is how a question is. */
export type InteractionStatus = Open<"unspecified" | "pending" | "resolved" | "canceled">;

/** Interaction is a question of a turn to a person. */
export interface Interaction {
  readonly id: string;
  readonly sessionId: string;
  readonly turnId: string;
  readonly kind: InteractionKind;
  readonly status: InteractionStatus;
  /** From the root of the tree to the agent that asks. */
  readonly agentPath: readonly string[];
  readonly question: string;
  /** What may be answered; empty: anything. */
  readonly choices: readonly string[];
  /** The tool call that it is about. */
  readonly toolCallId: string;
  /** Of an approval: the tool, and its arguments as JSON. */
  readonly toolName: string;
  readonly toolInput: string;
  /** Of what a tool asks that runs: in whose name, and the number among the questions of its call; 0 if no tool asks. */
  readonly source: string;
  readonly n: number;
  readonly createTime: Date | undefined;
  readonly endTime: Date | undefined;
  /** When the turn ends if nobody answers. */
  readonly expireTime: Date | undefined;
  /** Who has answered, as the server knows them. */
  readonly resolvedBy: string;
  /** What was said; undefined as long as nothing was. */
  readonly resolution: Resolution | undefined;
}

/** ApprovalScope is how far an approval holds that a tool asks for; the tool's client keeps what it says. */
export type ApprovalScope = Open<"once" | "session" | "session_verb" | "session_tool" | "always">;

/** Resolution is what a person says to an interaction. */
export type Resolution =
  /**
   * Lets a tool be called, with other arguments than the model's if they are given; or lets a tool that runs do what it
   * asks, as far as the scope says, which is once if it is left out.
   */
  | { readonly approve: true; readonly toolInput?: JsonObject; readonly scope?: ApprovalScope }
  /** Refuses a tool call, or an answer; the model is told why. */
  | { readonly deny: true; readonly reason?: string }
  /** What the model is told. */
  | { readonly answer: string };

/** ToolCallRef names a tool call. */
export interface ToolCallRef {
  readonly toolCallId: string;
  readonly toolName: string;
}

/** AbortedModelCall is a model call that a cancel has cut. */
export interface AbortedModelCall {
  readonly agentPath: readonly string[];
  readonly model: string;
  readonly messageId: string;
  /** How long it had run. */
  readonly ranMs: number;
}

/** CancelReceipt says what a cancel has stopped. */
export interface CancelReceipt {
  readonly abortedModelCalls: readonly AbortedModelCall[];
  readonly canceledToolCalls: readonly ToolCallRef[];
  readonly answeredToolCalls: readonly ToolCallRef[];
  /** From the cancel to the end. */
  readonly tookMs: number;
}

/** Visibility is for whom an event is: for whoever uses the agent, or for whoever builds or operates it. */
export type Visibility = "public" | "private";

/** Display is how a user interface may show an event. */
export interface Display {
  readonly kind: Open<"unspecified" | "text" | "reasoning" | "tool" | "interaction" | "status" | "error">;
  readonly phase: Open<
    "unspecified" | "delta" | "completed" | "started" | "progress" | "failed" | "requested" | "resolved" | "canceled"
  >;
  /** What belongs together has the same. */
  readonly ref: string;
  readonly visibility: Open<"unspecified" | Visibility>;
}

/** Capabilities is what a server is and allows. */
export interface Capabilities {
  readonly version: string;
  readonly providers: readonly Provider[];
  readonly builtinTools: readonly string[];
  readonly maxPromptBytes: number;
  readonly maxMessageBytes: number;
  /** How long sessions are kept that nobody uses; undefined: for ever. */
  readonly retentionMs: number | undefined;
  /** What the server knows, by name. */
  readonly features: readonly string[];
  /** How long the text is, in bytes, that the server puts before the instruction of each agent; 0 without one. */
  readonly instructionBytes: number;
  /** The SHA-256 of that text in hexadecimal digits; "" without one. */
  readonly instructionSha256: string;
}

/** Provider serves models. */
export interface Provider {
  readonly name: string;
  /** Whether the server has a key of its own for it. */
  readonly hasKey: boolean;
  readonly builtinTools: readonly string[];
  /** The header that carries a caller's key. */
  readonly keyHeader: string;
}

/** ModelList is what a server knows of models. */
export interface ModelList {
  readonly models: readonly Model[];
  /** When the prices were looked up, such as 2026-01-31. */
  readonly pricesDate: string;
}

/** Model is a model that the server knows by name. */
export interface Model {
  readonly name: string;
  readonly provider: string;
  /** Whether it can be called with the server's keys. */
  readonly available: boolean;
  readonly price: ModelPrice | undefined;
  readonly capabilities: ModelCapabilities | undefined;
  readonly builtinTools: readonly string[];
  /** Where prices and limits come from. */
  readonly source: string;
  /** When its provider ends it. */
  readonly retires: string;
}

/** ModelPrice is what a model costs. */
export interface ModelPrice {
  readonly tiers: readonly PriceTier[];
  readonly date: string;
}

/** PriceTier is what a million tokens cost in US dollars, of prompts with more tokens than abovePromptTokens. */
export interface PriceTier {
  readonly abovePromptTokens: number;
  readonly input: number;
  readonly cached: number;
  readonly output: number;
  /** Where thinking has a price of its own. */
  readonly thinking: number | undefined;
  readonly cacheWrites: readonly CacheWritePrice[];
}

/** CacheWritePrice is what it costs to write a million tokens into a cache that holds them for so long. */
export interface CacheWritePrice {
  readonly ttlMs: number;
  readonly price: number;
}

/** ModelCapabilities is what a model can do. */
export interface ModelCapabilities {
  readonly contextTokens: number;
  readonly outputTokens: number;
  /** Media types, or their beginnings. */
  readonly inputs: readonly string[];
  readonly thinking: boolean;
  readonly tools: boolean;
  readonly structuredOutput: boolean;
}

/** ModelCallDetails is what a model was told. */
export interface ModelCallDetails {
  readonly call: ModelCallEnded | undefined;
  readonly instruction: string;
  readonly toolNames: readonly string[];
  readonly generation: Generation | undefined;
  /** How many messages of history it was told. */
  readonly contents: number;
  /** The summary that it was told in place of the beginning. */
  readonly summary: string;
}
