import { callEndedOf, callOf, codeOf, deltaText, displayOf, errorOf, interactionOf, partsOf, receiptOf, resultPartsOf, structuredOf, usageOfEnd, warningsOf, } from "./fromjson.js";
import { bytesOf, dateOf, msOf, numberOf, wordOf } from "./json.js";
import { jsonValue } from "./text.js";
/** @internal eventOf reads a message of the server; undefined for heartbeats and for what tells nothing. */
export function eventOf(message) {
    const body = bodyOf(message);
    return (body && {
        ...body,
        seq: numberOf(message.seq),
        turnId: message.turnId ?? "",
        time: dateOf(message.time),
        replayed: message.replayed ?? false,
        display: displayOf(message.display),
    });
}
/** @internal ownEvent is an event that this client tells of. */
export function ownEvent(turnId, body) {
    return { ...body, seq: 0, turnId, time: undefined, replayed: false, display: undefined };
}
/** What messages have besides what they tell. */
const envelope = new Set(["seq", "turnId", "time", "replayed", "display"]);
function bodyOf(message) {
    for (const name of Object.keys(message)) {
        if (Object.hasOwn(readers, name)) {
            const read = readers[name];
            return read(message[name]);
        }
    }
    const name = Object.keys(message).find((key) => !envelope.has(key));
    if (name === undefined) {
        return undefined;
    }
    return { type: "unknown", name, data: message[name] ?? null };
}
/** What each kind of message tells. */
const readers = {
    heartbeat: () => undefined,
    turnQueued: ({ sessionId = "", userPrompt = "", userParts, ahead = 0, inject = false, createdBy = "" }) => {
        return { type: "turn_queued", sessionId, userPrompt, userParts: partsOf(userParts), ahead, inject, createdBy };
    },
    execute: ({ sessionId = "", warnings }) => ({ type: "turn_started", sessionId, warnings: warningsOf(warnings) }),
    outputChunk: ({ content = "", isThought = false, last = false, messageId = "", agentPath = [] }) => {
        return { type: "output_chunk", content, isThought, last, messageId, agentPath };
    },
    messageRetracted: ({ messageId = "", agentPath = [] }) => ({ type: "message_retracted", messageId, agentPath }),
    stateUpdate: (update) => {
        const stateDeltaJson = deltaText(update);
        return { type: "state_update", stateDelta: jsonValue(stateDeltaJson), stateDeltaJson };
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
    rawPayloadReceived: ({ messageId = "", agentPath = [], attempt = 0, provider = "", status = 0, contentType = "", ...more }) => {
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
    interactionRequested: ({ interaction }) => interaction && { type: "interaction_requested", interaction: interactionOf(interaction) },
    interactionResolved: ({ interaction }) => interaction && { type: "interaction_resolved", interaction: interactionOf(interaction) },
    error: (error) => ({ type: "error", error: errorOf(error) }),
    end: (end) => ({ type: "end", ...endOf(end) }),
};
function endOf({ completed = false, reason = "", usageSummary, receipt, structuredOutput, }) {
    return {
        completed,
        reason,
        usage: usageOfEnd(usageSummary),
        receipt: receiptOf(receipt),
        ...structuredOf(structuredOutput),
    };
}
//# sourceMappingURL=events.js.map