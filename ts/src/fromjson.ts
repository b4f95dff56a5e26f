// What the server says, as plain objects: the one place where the protocol's JSON is read, but for events. Servers
// leave out what is empty, 0 or false; here it is there.
import { refOf } from "./agents.js";
import { AgentdError, codes, type ErrorCode, type ErrorDetails } from "./errors.js";
import type { ToolCall } from "./events.js";
import type * as i from "./gen/agentd/v1/interactions_pb.js";
import type * as m from "./gen/agentd/v1/service_pb.js";
import type * as s from "./gen/agentd/v1/sessions_pb.js";
import type * as t from "./gen/agentd/v1/types_pb.js";
import { bytesOf, dateOf, msOf, numberOf, wordOf, type JsonObject, type JsonValue } from "./json.js";
import type { ModelCallEnded } from "./modelevents.js";
import type { Budget } from "./options.js";
import type { Part, ResultPart } from "./parts.js";
import type { Generation } from "./tree.js";
import type * as plain from "./types.js";
import type { Usage } from "./usage.js";

/** codeOf is a code of an error; a server may be newer than this client. */
export function codeOf(json: t.ErrorCodeJson | undefined): ErrorCode {
  return codes.find((code) => json === `ERROR_CODE_${code}`) ?? "UNSPECIFIED";
}

/** errorOf is an error of the server. */
export function errorOf(json: m.RunResponse_ErrorResponseJson, details: ErrorDetails = {}): AgentdError {
  return new AgentdError(codeOf(json.code), json.message ?? "", {
    retryable: json.retryable ?? false,
    sessionId: json.sessionId || undefined,
    turnId: json.turnId || undefined,
    retryAfterMs: json.retryAfter === undefined ? undefined : Math.max(msOf(json.retryAfter) ?? 0, 0),
    violations: (json.violations ?? []).map(({ field = "", rule = "" }) => ({ field, rule })),
    limit: json.limit && {
      name: json.limit.name ?? "",
      value: numberOf(json.limit.value),
      received: numberOf(json.limit.received),
    },
    ...details,
  });
}

/**
 * deltaText is what has changed of the state, as JSON text. Older servers have it with their numbers as float64 alone.
 */
export function deltaText({ stateDelta = {}, stateDeltaJson = "" }: m.RunResponse_StateUpdateJson): string {
  return stateDeltaJson || JSON.stringify(stateDelta);
}

export function usageOf(json: t.UsageJson | undefined): Usage | undefined {
  return (
    json && {
      promptTokens: numberOf(json.promptTokens),
      completionTokens: numberOf(json.completionTokens),
      cachedTokens: numberOf(json.cachedTokens),
      cacheWriteTokens: numberOf(json.cacheWriteTokens),
      thoughtsTokens: numberOf(json.thoughtsTokens),
      totalTokens: numberOf(json.totalTokens),
      modelCalls: numberOf(json.modelCalls),
      costUsd: json.costUsd === undefined ? undefined : Number(json.costUsd),
      unpricedCalls: numberOf(json.unpricedCalls),
    }
  );
}

/** usageOfEnd is the usage of an end, whose counts are at most 2,147,483,647. */
export function usageOfEnd(json: t.UsageSummaryJson | undefined): Usage | undefined {
  if (json === undefined) {
    return undefined;
  }
  const { totalUsage = {}, llmCalls = 0, estimatedCost = 0, unpricedCalls = 0 } = json;
  return {
    promptTokens: totalUsage.promptTokens ?? 0,
    completionTokens: totalUsage.completionTokens ?? 0,
    cachedTokens: totalUsage.cachedTokens ?? 0,
    cacheWriteTokens: totalUsage.cacheWriteTokens ?? 0,
    thoughtsTokens: totalUsage.thoughtsTokens ?? 0,
    totalTokens: totalUsage.totalTokens ?? 0,
    modelCalls: llmCalls,
    costUsd: unpricedCalls === 0 || unpricedCalls < llmCalls ? Number(estimatedCost) : undefined,
    unpricedCalls,
  };
}

export function sessionOf(json: s.SessionJson): plain.Session {
  return {
    id: json.id ?? "",
    state: wordOf("SESSION_STATE_", json.state),
    labels: json.labels ?? {},
    clientRef: json.clientRef ?? "",
    createdBy: json.createdBy ?? "",
    createTime: dateOf(json.createTime),
    updateTime: dateOf(json.updateTime),
    usage: usageOf(json.usage),
    budget: budgetOf(json.budget),
    version: numberOf(json.version),
    forkedFrom: json.forkedFrom ?? "",
    forkedThroughSeq: numberOf(json.forkedThroughSeq),
    lastTurnId: json.lastTurnId ?? "",
    lastTurnStatus: wordOf("TURN_STATUS_", json.lastTurnStatus),
    lastSeq: numberOf(json.lastSeq),
    purged: json.purged ?? false,
    dropToolPayloads: json.dropToolPayloads ?? false,
    metadata: json.metadata,
    agentRef: refOf(json.agentRef),
  };
}

/** budgetOf leaves out the amounts without a bound. */
function budgetOf(json: t.BudgetJson | undefined): Budget | undefined {
  if (json === undefined) {
    return undefined;
  }
  const { modelCalls, tokens, costUsd, wallTime } = json;
  return {
    ...(modelCalls === undefined ? {} : { modelCalls: Number(modelCalls) }),
    ...(tokens === undefined ? {} : { tokens: Number(tokens) }),
    ...(costUsd === undefined ? {} : { costUsd: Number(costUsd) }),
    ...(wallTime === undefined ? {} : { wallTimeMs: msOf(wallTime) }),
  };
}

export function turnOf(json: s.TurnJson): plain.Turn {
  return {
    id: json.id ?? "",
    sessionId: json.sessionId ?? "",
    status: wordOf("TURN_STATUS_", json.status),
    statusMessage: json.statusMessage ?? "",
    errorCode: json.errorCode === undefined ? undefined : codeOf(json.errorCode),
    userPrompt: json.userPrompt ?? "",
    createdBy: json.createdBy ?? "",
    author: json.author ?? "",
    outputText: json.outputText ?? "",
    usage: usageOf(json.usage),
    createTime: dateOf(json.createTime),
    startTime: dateOf(json.startTime),
    endTime: dateOf(json.endTime),
    durationMs: msOf(json.duration),
    afterSeq: numberOf(json.afterSeq),
    pendingToolCalls: (json.pendingToolCalls ?? []).map(callOf),
    injectedInto: json.injectedInto ?? "",
    receipt: receiptOf(json.receipt),
    ...structuredOf(json.structuredOutput),
    stopReason: wordOf("STOP_REASON_", json.stopReason),
    model: json.model ?? "",
    pendingInteractions: (json.pendingInteractions ?? []).map(interactionOf),
    userParts: partsOf(json.userParts),
  };
}

export function warningsOf(warnings: readonly t.WarningJson[] = []): plain.Warning[] {
  return warnings.map(({ code = "", field = "", message = "" }) => ({ code, field, message }));
}

/** structuredOf is a structured output; empty is none. */
export function structuredOf(text = ""): Pick<plain.Turn, "structuredOutput" | "structuredText"> {
  return text === ""
    ? { structuredOutput: undefined, structuredText: undefined }
    : { structuredOutput: JSON.parse(text) as JsonValue, structuredText: text };
}

/** callOf is a call, or a notice of one. */
export function callOf(json: m.RunResponse_ToolCallRequestJson): ToolCall {
  const { toolCallId = "", toolName = "", toolInput = "", agentPath = [], traceparent, tracestate, metadata } = json;
  const more = { ...(traceparent && { traceparent }), ...(tracestate && { tracestate }), ...(metadata && { metadata }) };
  return { toolCallId, toolName, toolInput, agentPath, ...more };
}

export function receiptOf(json: m.CancelReceiptJson | undefined): plain.CancelReceipt | undefined {
  const refs = (calls: m.ToolCallRefJson[] = []) =>
    calls.map(({ toolCallId = "", toolName = "" }): plain.ToolCallRef => ({ toolCallId, toolName }));
  return (
    json && {
      abortedModelCalls: (json.abortedModelCalls ?? []).map(({ agentPath = [], model = "", messageId = "", ran }) => {
        return { agentPath, model, messageId, ranMs: msOf(ran) ?? 0 };
      }),
      canceledToolCalls: refs(json.canceledToolCalls),
      answeredToolCalls: refs(json.answeredToolCalls),
      tookMs: msOf(json.took) ?? 0,
    }
  );
}

export function interactionOf(json: i.InteractionJson): plain.Interaction {
  return {
    id: json.id ?? "",
    sessionId: json.sessionId ?? "",
    turnId: json.turnId ?? "",
    kind: wordOf("INTERACTION_KIND_", json.kind),
    status: wordOf("INTERACTION_STATUS_", json.status),
    agentPath: json.agentPath ?? [],
    question: json.question ?? "",
    choices: json.choices ?? [],
    toolCallId: json.toolCallId ?? "",
    toolName: json.toolName ?? "",
    toolInput: json.toolInput ?? "",
    source: json.source ?? "",
    n: json.n ?? 0,
    createTime: dateOf(json.createTime),
    endTime: dateOf(json.endTime),
    expireTime: dateOf(json.expireTime),
    resolvedBy: json.resolvedBy ?? "",
    resolution: json.resolution && resolutionOf(json.resolution),
  };
}

function resolutionOf({ approve, deny, answer }: i.ResolutionJson): plain.Resolution | undefined {
  if (approve !== undefined) {
    const { toolInput, scope } = approve;
    return {
      approve: true,
      ...(toolInput === undefined ? {} : { toolInput: JSON.parse(toolInput) as JsonObject }),
      ...(scope === undefined ? {} : { scope: wordOf("APPROVAL_SCOPE_", scope) }),
    };
  }
  return deny === undefined
    ? answer === undefined
      ? undefined
      : { answer }
    : { deny: true, reason: deny.reason ?? "" };
}

/** partsOf are parts of a prompt; those that this client does not know are left out. */
export function partsOf(parts: readonly t.PartJson[] | undefined): Part[] {
  return resultPartsOf(parts).flatMap((part): Part[] => ("toolName" in part ? [] : [part]));
}

/** resultPartsOf are parts of a result; those that this client does not know are left out. */
export function resultPartsOf(parts: readonly t.PartJson[] = []): ResultPart[] {
  return parts.flatMap(({ text, inline, file, tool }): ResultPart[] => {
    if (text !== undefined) {
      return [{ text }];
    }
    if (inline !== undefined) {
      return [{ mimeType: inline.mimeType ?? "", data: bytesOf(inline.data) }];
    }
    if (file !== undefined) {
      return [{ mimeType: file.mimeType ?? "", uri: file.uri ?? "" }];
    }
    return tool === undefined ? [] : [{ toolName: tool.toolName ?? "" }];
  });
}

export function displayOf(json: m.DisplayJson | undefined): plain.Display | undefined {
  return (
    json && {
      kind: wordOf("KIND_", json.kind),
      phase: wordOf("PHASE_", json.phase),
      ref: json.ref ?? "",
      visibility: wordOf("VISIBILITY_", json.visibility),
    }
  );
}

export function callEndedOf(json: m.ModelCallEndedJson): ModelCallEnded {
  return {
    messageId: json.messageId ?? "",
    agentPath: json.agentPath ?? [],
    outcome: wordOf("OUTCOME_", json.outcome),
    model: json.model ?? "",
    servedModel: json.servedModel ?? "",
    provider: json.provider ?? "",
    usage: usageOf(json.usage),
    stopReason: wordOf("STOP_REASON_", json.stopReason),
    durationMs: msOf(json.duration) ?? 0,
    timeToFirstTextMs: msOf(json.timeToFirstText),
    toolCalls: json.toolCalls ?? 0,
  };
}

export function capabilitiesOf(json: s.GetCapabilitiesResponseJson): plain.Capabilities {
  return {
    version: json.version ?? "",
    providers: (json.providers ?? []).map(({ name = "", hasKey = false, builtinTools = [], keyHeader = "" }) => {
      return { name, hasKey, builtinTools, keyHeader };
    }),
    builtinTools: json.builtinTools ?? [],
    maxPromptBytes: numberOf(json.maxPromptBytes),
    maxMessageBytes: numberOf(json.maxMessageBytes),
    retentionMs: msOf(json.retention),
    features: json.features ?? [],
    instructionBytes: Number(json.instructionBytes ?? 0),
    instructionSha256: json.instructionSha256 ?? "",
  };
}

export function modelsOf(json: s.ListModelsResponseJson): plain.ModelList {
  return { models: (json.models ?? []).map(modelOf), pricesDate: json.pricesDate ?? "" };
}

function modelOf(json: s.ModelJson): plain.Model {
  const { capabilities: can, price } = json;
  return {
    name: json.name ?? "",
    provider: json.provider ?? "",
    available: json.available ?? false,
    price: price && { tiers: (price.tiers ?? []).map(tierOf), date: price.date ?? "" },
    capabilities: can && {
      contextTokens: numberOf(can.contextTokens),
      outputTokens: numberOf(can.outputTokens),
      inputs: can.inputs ?? [],
      thinking: can.thinking ?? false,
      tools: can.tools ?? false,
      structuredOutput: can.structuredOutput ?? false,
    },
    builtinTools: json.builtinTools ?? [],
    source: json.source ?? "",
    retires: json.retires ?? "",
  };
}

function tierOf(json: s.PriceTierJson): plain.PriceTier {
  return {
    abovePromptTokens: numberOf(json.abovePromptTokens),
    input: Number(json.input ?? 0),
    cached: Number(json.cached ?? 0),
    output: Number(json.output ?? 0),
    thinking: json.thinking === undefined ? undefined : Number(json.thinking),
    cacheWrites: (json.cacheWrites ?? []).map(({ ttl, price = 0 }) => ({
      ttlMs: msOf(ttl) ?? 0,
      price: Number(price),
    })),
  };
}

export function modelCallOf(json: s.ModelCallDetailsJson): plain.ModelCallDetails {
  return {
    call: json.call && callEndedOf(json.call),
    instruction: json.instruction ?? "",
    toolNames: json.toolNames ?? [],
    generation: json.generation && generationOf(json.generation),
    contents: json.contents ?? 0,
    summary: json.summary ?? "",
  };
}

function generationOf(json: t.GenerationSettingsJson): Generation {
  const { temperature, topP, maxOutputTokens, stopSequences, seed, thinking, toolChoice, cache } = json;
  const ttlMs = msOf(cache?.ttl);
  return {
    ...(temperature === undefined ? {} : { temperature: Number(temperature) }),
    ...(topP === undefined ? {} : { topP: Number(topP) }),
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
    ...(stopSequences === undefined ? {} : { stopSequences }),
    ...(seed === undefined ? {} : { seed }),
    ...(thinking === undefined ? {} : { thinking: thinkingOf(thinking) }),
    ...(toolChoice === undefined
      ? {}
      : { toolChoice: { mode: wordOf("MODE_", toolChoice.mode), toolNames: toolChoice.toolNames ?? [] } }),
    ...(cache === undefined
      ? {}
      : { cache: { mode: wordOf("MODE_", cache.mode), ...(ttlMs === undefined ? {} : { ttlMs }) } }),
  };
}

function thinkingOf({
  effort,
  budgetTokens,
  includeThoughts = false,
}: t.ThinkingJson): NonNullable<Generation["thinking"]> {
  return {
    includeThoughts,
    ...(effort === undefined ? {} : { effort: wordOf("EFFORT_", effort) }),
    ...(budgetTokens === undefined ? {} : { budgetTokens }),
  };
}
