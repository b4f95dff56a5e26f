// What callers may choose.
import { amountOf, dayMs, sumOf, timeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import { enumOf, given } from "./json.js";
import { promptOf } from "./parts.js";
import { jsonText, messageOf, newKey, wellFormed } from "./text.js";
/** @internal visibilityOf is its name on the wire; undefined is all. */
export function visibilityOf(visibility) {
    return enumOf("VISIBILITY_", visibility);
}
/** @internal seqOf is a position of a session as the protocol has it. */
export function seqOf(seq, name = "afterSeq") {
    if (/^\d+$/.test(String(seq))) {
        return String(seq);
    }
    throw new AgentdError("INVALID_REQUEST", `${name} is ${JSON.stringify(String(seq))}, must be the seq of an event`);
}
/** @internal requestOf returns the request for a turn of a tree. It throws INVALID_REQUEST for what cannot be sent. */
export function requestOf(o, agent, tools) {
    if ((o.prompt ?? "") === "" && (o.parts ?? []).length === 0) {
        throw new AgentdError("INVALID_REQUEST", "a run needs a prompt, or parts; attach follows a turn that there is");
    }
    if (o.create === true && (o.sessionId ?? "") === "") {
        throw new AgentdError("INVALID_REQUEST", "create makes the session that sessionId names: there is no sessionId");
    }
    if (agent === undefined && (o.sessionId ?? "") === "") {
        throw new AgentdError("INVALID_REQUEST", "a run needs an agent, or the sessionId of a session to continue");
    }
    try {
        return JSON.parse(JSON.stringify(messageFor(o, agent, tools)));
    }
    catch (thrown) {
        if (thrown instanceof AgentdError) {
            throw thrown;
        }
        throw new AgentdError("INVALID_REQUEST", `the run cannot be sent: ${messageOf(thrown)}`, { cause: thrown });
    }
}
function messageFor(o, agent, tools) {
    const { prompt = "" } = o;
    if (typeof prompt !== "string") {
        throw new AgentdError("INVALID_REQUEST", "the run cannot be sent: the prompt is no text");
    }
    return {
        ...given({
            userPrompt: wellFormed(prompt),
            userParts: promptOf(o.parts ?? []),
            rawPayloads: o.rawPayloads,
            tools,
            idempotencyKey: o.idempotencyKey || newKey(),
            onBusy: enumOf("ON_BUSY_", o.onBusy),
            onDisconnect: enumOf("ON_DISCONNECT_", o.onDisconnect),
            instruction: wellFormed(o.instruction ?? ""),
            create: o.create,
            turnId: o.turnId,
            agent,
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
export function budgetOf(name, b) {
    return given({
        modelCalls: sumOf(`${name}.modelCalls`, b.modelCalls),
        tokens: sumOf(`${name}.tokens`, b.tokens),
        costUsd: amountOf(`${name}.costUsd`, b.costUsd ?? 0, { least: 0, most: Number.MAX_VALUE }),
        wallTime: timeOf(`${name}.wallTimeMs`, b.wallTimeMs, { most: 365 * dayMs }),
    });
}
/** headersOf joins headers; of two of the same name the later one holds, and one that is undefined is not set. */
export function headersOf(...all) {
    const out = new Headers();
    for (const some of all) {
        new Headers(definedOf(some)).forEach((value, name) => out.set(name, value));
    }
    return out;
}
/** definedOf leaves out what Headers would take for the text "undefined". */
function definedOf(some = {}) {
    const entries = Symbol.iterator in some ? [...some] : Object.entries(some);
    return entries.filter(([, value]) => value !== undefined);
}
/** @internal keyHeaders are the headers that carry provider keys. */
export function keyHeaders(keys = {}) {
    const named = {
        "X-Agentd-Gemini-Api-Key": keys.gemini,
        "X-Agentd-Anthropic-Api-Key": keys.anthropic,
        "X-Agentd-Openai-Api-Key": keys.openai,
    };
    return Object.entries(named).flatMap(([name, key]) => (key ? [[name, key]] : []));
}
//# sourceMappingURL=options.js.map