// What happens in a turn.
import type { JsonObject, JsonValue } from "@bufbuild/protobuf";
import { durationMs, timestampDate } from "@bufbuild/protobuf/wkt";
import { codeNameOf, fromResponse, type AgentdError, type ErrorCodeName } from "./errors.js";
import type { Interaction } from "./gen/agentd/v1/interactions_pb.js";
import type { Display, RunResponse, CancelReceipt, RunResponse_EndResponse } from "./gen/agentd/v1/service_pb.js";
import {
  callEndedOf,
  compactedOf,
  fallbackOf,
  providerToolsOf,
  rawPayloadOf,
  type HistoryCompacted,
  type ModelCallEnded,
  type ModelFallback,
  type ProviderTools,
  type RawPayload,
} from "./modelevents.js";
import { partsOf, resultPartsOf, type Part, type ResultPart } from "./parts.js";
import { usageOfEnd, type Usage } from "./usage.js";

/** EventBase is what all events have. */
export interface EventBase {
  /**
   * The event's place in the session: what afterSeq takes. It rises, but not by one. 0n on an event of this client, and on the
   * first pieces of a text that comes in several.
   */
  readonly seq: bigint;
  /** The turn it is about. */
  readonly turnId: string;
  /** When it happened by the server's clock; undefined for text that is on its way, and for events of this client. */
  readonly time: Date | undefined;
  /** Whether it happened before the server saw this client, or saw it again. */
  readonly replayed: boolean;
  /** How a user interface may show it; only where display was asked for. */
  readonly display: Display | undefined;
}

/** ToolCall is a call of a tool. */
export interface ToolCall {
  /** Unique within the session. */
  readonly id: string;
  /** The tool's name. */
  readonly name: string;
  /** The arguments, a JSON object, in the model's own text. */
  readonly input: string;
  /** From the root of the tree to the agent that calls. */
  readonly agentPath: readonly string[];
}

/** EventBody is what an event is about; its type says which. */
export type EventBody =
  /** A prompt waits for the turns before it. */
  | {
      readonly type: "queued";
      readonly sessionId: string;
      readonly prompt: string;
      readonly parts: readonly Part[];
      readonly ahead: number;
      readonly inject: boolean;
    }
  /** The turn runs. */
  | { readonly type: "started"; readonly sessionId: string }
  /** A piece of an agent's text, or of its thinking. last is true once per agent and turn in which it spoke. */
  | {
      readonly type: "text";
      readonly text: string;
      readonly thought: boolean;
      readonly last: boolean;
      readonly messageId: string;
      readonly agentPath: readonly string[];
    }
  /** Text is void and starts over under the same id. An empty messageId means all unfinished messages; see Transcript. */
  | { readonly type: "retract"; readonly messageId: string; readonly agentPath: readonly string[] }
  /** Session state: first the whole of it, if there is any, later what changed. A key whose value is null has been removed. */
  | { readonly type: "state"; readonly delta: JsonObject }
  /** A tool of this client is asked for. When a call is asked again, its tool runs and nothing is told. */
  | { readonly type: "tool_call"; readonly call: ToolCall }
  /** Another client is asked for a tool, or was. */
  | { readonly type: "tool_notice"; readonly call: ToolCall }
  /** Nobody waits for a tool any more. */
  | { readonly type: "tool_call_canceled"; readonly callId: string; readonly reason: string }
  /** A tool call waits, and no client that is attached has its tool. The call is asked for once one attaches that has it. */
  | {
      readonly type: "tool_unserved";
      readonly callId: string;
      readonly name: string;
      readonly agentPath: readonly string[];
      /** When the turn ends if none attaches. */
      readonly expires: Date | undefined;
    }
  /** A tool call was answered, by whichever client; either output or error is set. */
  | {
      readonly type: "tool_result";
      readonly callId: string;
      readonly name: string;
      readonly output: string | undefined;
      readonly error: string | undefined;
      /** What the model sees behind output, such as images. */
      readonly parts: readonly ResultPart[];
      readonly agentPath: readonly string[];
    }
  /** All of a message was in text and thoughts; nothing of it is retracted any more. */
  | {
      readonly type: "message_completed";
      readonly messageId: string;
      readonly agentPath: readonly string[];
      readonly textBytes: number;
      readonly thoughtBytes: number;
    }
  /** An agent has handed the conversation over to another one, which goes on with it. */
  | { readonly type: "transferred"; readonly agentPath: readonly string[]; readonly toAgentPath: readonly string[] }
  /** A user has said something to the running turn. */
  | { readonly type: "message_injected"; readonly text: string; readonly parts: readonly Part[]; readonly queuedTurnId: string }
  /** A model call has failed before any of its text was there, and is made again. */
  | {
      readonly type: "model_call_retried";
      readonly messageId: string;
      readonly agentPath: readonly string[];
      readonly attempt: number;
      readonly waitMs: number;
      readonly code: ErrorCodeName;
      readonly message: string;
    }
  /** A model has failed before any of its text was there, and another one is called. */
  | ({ readonly type: "model_call_fell_back" } & ModelFallback)
  /** A model call is over. */
  | ({ readonly type: "model_call_ended" } & ModelCallEnded)
  /** A model's own provider has run tools, or a message cites sources. */
  | ({ readonly type: "provider_tools_used" } & ProviderTools)
  /** A provider's own answer; only where rawPayloads was asked for. */
  | ({ readonly type: "raw_payload_received" } & RawPayload)
  /** An agent's model is from now on told a summary of the beginning of the conversation. */
  | ({ readonly type: "history_compacted" } & HistoryCompacted)
  /** A person is asked. */
  | { readonly type: "interaction_requested"; readonly interaction: Interaction }
  /** A person has answered, or need not any more. */
  | { readonly type: "interaction_resolved"; readonly interaction: Interaction }
  /** Something went wrong that did not end the turn, such as a tool's result that the server has refused. */
  | { readonly type: "error"; readonly error: AgentdError }
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
  /** The last answer as a value, when the agent that gave it has an output schema: JSON.parse of structuredText. */
  readonly structuredOutput: JsonValue | undefined;
  /** The same as the model wrote it, for readers to whom the numbers of JavaScript are not enough. */
  readonly structuredText: string | undefined;
}

/** Event is one thing that happened in a turn. */
export type Event = EventBase & EventBody;

/** eventOf translates a message of the server; undefined for one that this client does not know, and for heartbeats. */
export function eventOf(message: RunResponse): Event | undefined {
  const body = bodyOf(message.response);
  if (body === undefined) {
    return undefined;
  }
  return {
    ...body,
    seq: message.seq,
    turnId: message.turnId,
    time: message.time === undefined ? undefined : timestampDate(message.time),
    replayed: message.replayed,
    display: message.display,
  };
}

/** ownEvent is an event that this client tells of. */
export function ownEvent(turnId: string, body: EventBody): Event {
  return { ...body, seq: 0n, turnId, time: undefined, replayed: false, display: undefined };
}

function bodyOf(response: RunResponse["response"]): EventBody | undefined {
  switch (response.case) {
    case "turnQueued": {
      const { sessionId, userPrompt, userParts, ahead, inject } = response.value;
      return { type: "queued", sessionId, prompt: userPrompt, parts: partsOf(userParts), ahead, inject };
    }
    case "execute":
      return { type: "started", sessionId: response.value.sessionId };
    case "outputChunk": {
      const { content, isThought, last, messageId, agentPath } = response.value;
      return { type: "text", text: content, thought: isThought, last, messageId, agentPath };
    }
    case "messageRetracted":
      return { type: "retract", messageId: response.value.messageId, agentPath: response.value.agentPath };
    case "stateUpdate":
      return { type: "state", delta: response.value.stateDelta ?? {} };
    case "toolCall":
      return { type: "tool_call", call: callOf(response.value) };
    case "toolCallAnnounced":
      return { type: "tool_notice", call: callOf(response.value) };
    case "toolCallCanceled":
      return { type: "tool_call_canceled", callId: response.value.toolCallId, reason: response.value.reason };
    case "toolCallUnserved": {
      const { toolCallId, toolName, agentPath, expireTime } = response.value;
      const expires = expireTime === undefined ? undefined : timestampDate(expireTime);
      return { type: "tool_unserved", callId: toolCallId, name: toolName, agentPath, expires };
    }
    case "toolCallAnswered": {
      const { toolCallId, toolName, result, parts, agentPath } = response.value;
      return {
        type: "tool_result",
        callId: toolCallId,
        name: toolName,
        output: result.case === "output" ? result.value : undefined,
        error: result.case === "error" ? result.value : undefined,
        parts: resultPartsOf(parts),
        agentPath,
      };
    }
    case "messageInjected": {
      const { content, parts, queuedTurnId } = response.value;
      return { type: "message_injected", text: content, parts: partsOf(parts), queuedTurnId };
    }
    case "modelCallRetried": {
      const { messageId, agentPath, attempt, wait, code, message } = response.value;
      return {
        type: "model_call_retried",
        messageId,
        agentPath,
        attempt,
        waitMs: wait === undefined ? 0 : durationMs(wait),
        code: codeNameOf(code),
        message,
      };
    }
    case "messageCompleted": {
      const { messageId, agentPath, textBytes, thoughtBytes } = response.value;
      return { type: "message_completed", messageId, agentPath, textBytes: Number(textBytes), thoughtBytes: Number(thoughtBytes) };
    }
    case "transferred":
      return { type: "transferred", agentPath: response.value.agentPath, toAgentPath: response.value.toAgentPath };
    case "modelCallFellBack":
      return { type: "model_call_fell_back", ...fallbackOf(response.value) };
    case "modelCallEnded":
      return { type: "model_call_ended", ...callEndedOf(response.value) };
    case "providerToolsUsed":
      return { type: "provider_tools_used", ...providerToolsOf(response.value) };
    case "rawPayloadReceived":
      return { type: "raw_payload_received", ...rawPayloadOf(response.value) };
    case "historyCompacted":
      return { type: "history_compacted", ...compactedOf(response.value) };
    case "interactionRequested":
    case "interactionResolved": {
      const { interaction } = response.value;
      const type = response.case === "interactionRequested" ? "interaction_requested" : "interaction_resolved";
      return interaction === undefined ? undefined : { type, interaction };
    }
    case "error":
      return { type: "error", error: fromResponse(response.value) };
    case "end":
      return { type: "end", ...endOf(response.value) };
    default:
      return undefined;
  }
}

function endOf(end: RunResponse_EndResponse): End {
  return {
    completed: end.completed,
    reason: end.reason ?? "",
    usage: end.usageSummary && usageOfEnd(end.usageSummary),
    receipt: end.receipt,
    ...structuredOf(end.structuredOutput),
  };
}

/** structuredOf translates a structured output; empty is none. */
export function structuredOf(text: string): Pick<End, "structuredOutput" | "structuredText"> {
  if (text === "") {
    return { structuredOutput: undefined, structuredText: undefined };
  }
  return { structuredOutput: JSON.parse(text) as JsonValue, structuredText: text };
}

/** callOf translates a call, and a notice of one. */
export function callOf(m: { toolCallId: string; toolName: string; toolInput: string; agentPath: string[] }): ToolCall {
  return { id: m.toolCallId, name: m.toolName, input: m.toolInput, agentPath: m.agentPath };
}
