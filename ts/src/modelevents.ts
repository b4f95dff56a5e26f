// What happens in and around model calls.
import { durationMs } from "@bufbuild/protobuf/wkt";
import { codeNameOf, type ErrorCodeName } from "./errors.js";
import {
  HistoryCompacted_Reason,
  type HistoryCompacted as CompactedMessage,
  ModelCallEnded_Outcome,
  type ModelCallEnded as CallEndedMessage,
  type ModelCallFellBack,
  type ProviderToolsUsed,
  type RawPayloadReceived,
} from "./gen/agentd/v1/service_pb.js";
import { StopReason } from "./gen/agentd/v1/types_pb.js";
import { usageOf, type Usage } from "./usage.js";

/** StopReasonName is why a model ended an answer: the protocol's StopReason without its prefix, such as `MAX_TOKENS`. */
export type StopReasonName = keyof typeof StopReason;

/** CallOutcomeName is what has come of a model call: the protocol's Outcome without its prefix. `UNSPECIFIED` is one that an older server does not tell. */
export type CallOutcomeName = keyof typeof ModelCallEnded_Outcome;

/** ModelCall is what such events have in common. */
interface ModelCall {
  /** The message that the call writes; empty in what is about a call for a summary, and in a `ModelCallEnded` of a call that has failed. */
  readonly messageId: string;
  /** From the root of the tree to the agent whose call it is. */
  readonly agentPath: readonly string[];
}

/** ModelFallback says that a model has failed before any of its text was there, and that another one is called. */
export interface ModelFallback extends ModelCall {
  /** The model that has failed, as the agent names it. */
  readonly model: string;
  /** The one that is called now. */
  readonly nextModel: string;
  /** Why the first one failed. */
  readonly code: ErrorCodeName;
  /** The same for people. */
  readonly message: string;
}

/** ModelCallEnded says that a model call is over, and what it took. The sum over the turn is the usage of its end. */
export interface ModelCallEnded extends ModelCall {
  /** What has come of it: `ANSWERED`, `SUMMARIZED`, or `FAILED`, which is told because it was paid for. */
  readonly outcome: CallOutcomeName;
  /** The model that was called last, as the agent names it. */
  readonly model: string;
  /** The name that its provider gave it. */
  readonly servedModel: string;
  /** Who served it. */
  readonly provider: string;
  /** What it took, all its tries included. */
  readonly usage: Usage | undefined;
  /** Why the model stopped. */
  readonly stopReason: StopReasonName;
  /** From the first try to the end of the answer, waits included. */
  readonly durationMs: number;
  /** From the first try to the first text, or thought; undefined when there was none. */
  readonly firstTextMs: number | undefined;
}

/** ProviderToolUse is one run of a tool by a model's own provider. What the provider does not say is empty. */
export interface ProviderToolUse {
  readonly id: string;
  /** The builtin tool, such as `google_search`, `web_search` and `code_execution`; else the provider's own name. */
  readonly name: string;
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
   * The part of the message's text, without thoughts, as offsets in bytes of its UTF-8 form, end behind the last one; both 0 when
   * the provider does not say. See {@link citedPart}.
   */
  readonly startByte: number;
  readonly endByte: number;
}

/** ProviderTools tells what a model's own provider has run while it wrote a message, and what the message cites. */
export interface ProviderTools extends ModelCall {
  readonly uses: readonly ProviderToolUse[];
  readonly citations: readonly Citation[];
}

/** RawPayload is a provider's answer to one try of a model call as it came; only where rawPayloads was asked for. */
export interface RawPayload extends ModelCall {
  /** The try of a model, from 1. */
  readonly attempt: number;
  readonly provider: string;
  /** The HTTP status. */
  readonly status: number;
  readonly contentType: string;
  /** At most 1 MiB. */
  readonly body: Uint8Array;
  /** Whether there was more. */
  readonly truncated: boolean;
}

/** HistoryCompacted says that an agent's model is from now on told a summary in place of the beginning of the conversation. */
export interface HistoryCompacted {
  readonly agentPath: readonly string[];
  /** What the model is told. */
  readonly summary: string;
  /** The seq up to which the summary stands for what has happened. */
  readonly throughSeq: bigint;
  /** Whether the provider had refused the prompt as too long; else it had come to the share that was set. */
  readonly overflow: boolean;
  /** Tokens of the prompt before; 0 is not known. */
  readonly promptTokens: number;
  /** The context window that was counted with, in tokens; 0 is not known. */
  readonly contextTokens: number;
}

/** citedPart is the part of a message's text for which a citation is given; empty when the provider does not say. */
export function citedPart(text: string, { startByte, endByte }: Citation): string {
  return new TextDecoder().decode(new TextEncoder().encode(text).subarray(startByte, endByte));
}

export function fallbackOf({ messageId, agentPath, model, nextModel, code, message }: ModelCallFellBack): ModelFallback {
  return { messageId, agentPath, model, nextModel, code: codeNameOf(code), message };
}

export function callEndedOf(m: CallEndedMessage): ModelCallEnded {
  const { messageId, agentPath, model, servedModel, provider, usage } = m;
  return {
    messageId,
    agentPath,
    outcome: (ModelCallEnded_Outcome[m.outcome] as CallOutcomeName | undefined) ?? "UNSPECIFIED",
    model,
    servedModel,
    provider,
    usage: usage && usageOf(usage),
    stopReason: (StopReason[m.stopReason] as StopReasonName | undefined) ?? "OTHER",
    durationMs: m.duration === undefined ? 0 : durationMs(m.duration),
    firstTextMs: m.timeToFirstText === undefined ? undefined : durationMs(m.timeToFirstText),
  };
}

export function providerToolsOf({ messageId, agentPath, uses, citations }: ProviderToolsUsed): ProviderTools {
  return {
    messageId,
    agentPath,
    uses: uses.map(({ id, toolName, input, output, error }) => ({ id, name: toolName, input, output, error })),
    citations: citations.map(({ uri, title, citedText, startByte, endByte }) => ({ uri, title, citedText, startByte, endByte })),
  };
}

export function rawPayloadOf(m: RawPayloadReceived): RawPayload {
  const { messageId, agentPath, attempt, provider, status, contentType, body, truncated } = m;
  return { messageId, agentPath, attempt, provider, status, contentType, body, truncated };
}

export function compactedOf(m: CompactedMessage): HistoryCompacted {
  const { agentPath, summary, throughSeq } = m;
  return {
    agentPath,
    summary,
    throughSeq,
    overflow: m.reason === HistoryCompacted_Reason.OVERFLOW,
    promptTokens: Number(m.promptTokens),
    contextTokens: Number(m.contextTokens),
  };
}
