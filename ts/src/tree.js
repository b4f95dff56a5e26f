// Trees of agents.
import { countOf, dayMs, timeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import { enumOf, given } from "./json.js";
import { schemaText } from "./schema.js";
/** llm is one model with an instruction and tools. */
export function llm(options) {
    const { name, output, compaction, generation } = options;
    const one = given({
        instruction: options.instruction,
        toolNames: [...(options.tools ?? [])],
        builtinTools: [...(options.builtinTools ?? [])],
        subAgents: [...(options.subAgents ?? [])],
        outputKey: options.outputKey,
        includeHistory: options.history === "turn" ? "INCLUDE_HISTORY_TURN" : undefined,
        fallbackModels: [...(options.fallbackModels ?? [])],
        generation: generation === undefined ? undefined : generationOf(generation),
        outputSchema: output === undefined ? undefined : schemaText(output, `the output of agent ${name}`),
    });
    if (compaction !== undefined)
        one.compaction = compactionOf(compaction); // an empty one is never
    const attachments = (options.mcpAttachments ?? []).map((a) => (typeof a === "string" ? { mcpName: a } : a));
    return {
        name,
        description: options.description ?? "",
        llm: { ...one, model: options.model, ...(attachments.length === 0 ? {} : { mcpAttachments: attachments }) },
    };
}
function compactionOf({ atShare, contextTokens, model, instruction }) {
    const tokens = contextTokens ?? 0;
    if (!Number.isSafeInteger(tokens) || tokens < 0) {
        throw new AgentdError("INVALID_AGENT_TREE", `compaction: contextTokens is ${tokens}, must be a whole number of at least 0`);
    }
    return { atShare, ...given({ contextTokens: tokens === 0 ? "" : String(tokens), model, instruction }) };
}
function generationOf(g) {
    const { temperature, topP, stopSequences, seed, thinking, toolChoice, cache } = g;
    const maxOutputTokens = countOf("generation.maxOutputTokens", g.maxOutputTokens);
    const out = given({ maxOutputTokens });
    if (temperature !== undefined)
        out.temperature = temperature;
    if (topP !== undefined)
        out.topP = topP;
    if (stopSequences !== undefined)
        out.stopSequences = [...stopSequences];
    if (seed !== undefined)
        out.seed = seed;
    if (thinking !== undefined) {
        const { effort, budgetTokens, includeThoughts } = thinking;
        out.thinking = given({ includeThoughts });
        if (effort !== undefined)
            out.thinking.effort = enumOf("EFFORT_", effort);
        if (budgetTokens !== undefined)
            out.thinking.budgetTokens = countOf("generation.thinking.budgetTokens", budgetTokens);
    }
    if (toolChoice !== undefined) {
        out.toolChoice = { mode: enumOf("MODE_", toolChoice.mode), toolNames: [...(toolChoice.toolNames ?? [])] };
    }
    if (cache !== undefined) {
        out.cache = { mode: enumOf("MODE_", cache.mode) };
        const ttl = timeOf("generation.cache.ttlMs", cache.ttlMs, { most: dayMs });
        if (ttl !== undefined)
            out.cache.ttl = ttl;
    }
    return out;
}
/** sequential runs its agents one after the other. */
export function sequential({ name, description = "", agents }) {
    return { name, description, sequential: { agents: [...agents] } };
}
/** parallel runs its agents at the same time. */
export function parallel({ name, description = "", agents }) {
    return { name, description, parallel: { agents: [...agents] } };
}
/** loop runs its agents in order, again and again, at most maxIterations times; 0 means the server's default. */
export function loop({ name, description = "", agents, maxIterations, }) {
    const limit = given({ maxIterations: countOf("maxIterations", maxIterations) });
    return { name, description, loop: { agents: [...agents], ...limit } };
}
//# sourceMappingURL=tree.js.map