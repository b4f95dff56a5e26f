// What happens in and around model calls.
import type { ErrorCode } from "./errors.js";
import type { Open, StopReason } from "./types.js";
import type { Usage } from "./usage.js";

/** CallOutcome is what has come of a model call. `unspecified` is one that an older server does not tell. */
export type CallOutcome = Open<"unspecified" | "answered" | "summarized" | "failed">;

/** ModelCall is what such events have in common. */
export interface ModelCall {
  /**
   * The message that the call writes; empty in what is about a call for a summary, and in a `ModelCallEnded` of a call
   * that has failed.
   */
  readonly messageId: string;
  /** From the root of the tree to the agent whose call it is. */
  readonly agentPath: readonly string[];
}

/** ModelCallFellBack says that a model has failed before any of its text was there, and that another one is called. */
export interface ModelCallFellBack extends ModelCall {
  /** The model that has failed, as the agent names it. */
  readonly model: string;
  /** The one that is called now. */
  readonly nextModel: string;
  /** Why the first one failed. */
  readonly code: ErrorCode;
  /** The same for people. */
  readonly message: string;
}

/** ModelCallEnded says that a model call is over, and what it took. The sum over the turn is the usage of its end. */
export interface ModelCallEnded extends ModelCall {
  /** What has come of it: `answered`, `summarized`, or `failed`, which is told because it was paid for. */
  readonly outcome: CallOutcome;
  /** The model that was called last, as the agent names it. */
  readonly model: string;
  /** The name that its provider gave it. */
  readonly servedModel: string;
  /** Who served it. */
  readonly provider: string;
  /** What it took, all its tries included. */
  readonly usage: Usage | undefined;
  /** Why the model stopped. */
  readonly stopReason: StopReason;
  /** From the first try to the end of the response, waits included. */
  readonly durationMs: number;
  /** From the first try to the first text, or thought; undefined when there was none. */
  readonly timeToFirstTextMs: number | undefined;
  /** How many tool calls and questions the response has. They follow. */
  readonly toolCalls: number;
}

/** ProviderToolUse is one run of a tool by a model's own provider. What the provider does not say is empty. */
export interface ProviderToolUse {
  readonly id: string;
  /** The builtin tool, such as `google_search`, `web_search` and `code_execution`; else the provider's own name. */
  readonly toolName: string;
  /** What it was asked, JSON. */
  readonly input: string;
  /** What it found, JSON. */
  readonly output: string;
  /** Why it failed; empty when it did not. */
  readonly error: string;
}

/** Citation is a source of a part of a message. What the provider does not say is empty. */
export interface Citation {
  readonly uri: string;
  readonly title: string;
  /** The words of the source. */
  readonly citedText: string;
  /**
   * The part of the message's text, without thoughts, as offsets in bytes of its UTF-8 form, end behind the last one;
   * both 0 when the provider does not say. See {@link citedPart}.
   */
  readonly startByte: number;
  readonly endByte: number;
}

/** ProviderToolsUsed tells what a model's own provider has run while it wrote a message, and what the message cites. */
export interface ProviderToolsUsed extends ModelCall {
  readonly uses: readonly ProviderToolUse[];
  readonly citations: readonly Citation[];
}

/**
 * RawPayloadReceived is a provider's response to one try of a model call as it came; only where rawPayloads was asked
 * for.
 */
export interface RawPayloadReceived extends ModelCall {
  /** The try of a model, from 1. */
  readonly attempt: number;
  readonly provider: string;
  /** The HTTP status. */
  readonly status: number;
  readonly contentType: string;
  /** At most 1 MiB; JSON.stringify has it as base64. */
  readonly body: Uint8Array;
  /** Whether there was more. */
  readonly truncated: boolean;
}

/**
 * HistoryCompacted says that an agent's model is from now on told a summary in place of the beginning of the
 * conversation.
 */
export interface HistoryCompacted {
  readonly agentPath: readonly string[];
  /** What the model is told. */
  readonly summary: string;
  /** The seq up to which the summary stands for what has happened. */
  readonly throughSeq: number;
  /**
   * Why: `overflow` if the provider had refused the prompt as too long, `share` if it had come to the share that was
   * set, `checkpoint` if the model has marked a task as done, `requested` if somebody has asked for it.
   */
  readonly reason: Open<"unspecified" | "share" | "overflow" | "checkpoint" | "requested">;
  /** Tokens of the prompt before; 0 is not known. */
  readonly promptTokens: number;
  /** The context window that was counted with, in tokens; 0 is not known. */
  readonly contextTokens: number;
}

/** citedPart is the part of a message's text for which a citation is given; empty when the provider does not say. */
export function citedPart(text: string, { startByte, endByte }: Citation): string {
  return new TextDecoder().decode(new TextEncoder().encode(text).subarray(startByte, endByte));
}
