// Trees of agents.
import { countOf, dayMs, timeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import type { AgentJson, AgentToolJson, BackgroundAgentsJson, CompactionJson, GenerationSettingsJson, LlmAgentJson, RemoteAgentJson } from "./gen/agentd/v1/types_pb.js";
import { enumOf, given } from "./json.js";
import { schemaText, type Schema } from "./schema.js";
import type { Open } from "./types.js";

/**
 * Agent is a node of a tree, as JSON has the protocol's Agent: what {@link llm}, {@link sequential}, {@link parallel},
 * {@link loop} and {@link remote} make.
 */
export interface Agent {
  readonly name: string;
  readonly description?: string;
  /** Of the five one is set. */
  readonly llm?: { readonly model: string; readonly [field: string]: unknown };
  readonly sequential?: { readonly agents: readonly Agent[] };
  readonly parallel?: { readonly agents: readonly Agent[] };
  readonly loop?: { readonly agents: readonly Agent[]; readonly maxIterations?: number };
  readonly remote?: { readonly backend: string; readonly [field: string]: unknown };
}

/** Generation is how a model is to write. What is left out is the provider's own. */
export interface Generation {
  /** From 0 to 2. */
  temperature?: number | undefined;
  /** Above 0, at most 1. */
  topP?: number | undefined;
  /** The longest response; 0 is the model's own. */
  maxOutputTokens?: number | undefined;
  /** Texts that end a response; at most 16. */
  stopSequences?: readonly string[] | undefined;
  seed?: number | undefined;
  /** How much the model is to think: an effort, or a number of tokens. */
  thinking?:
    | {
        readonly effort?: Open<"minimal" | "low" | "medium" | "high"> | undefined;
        readonly budgetTokens?: number | undefined;
        /** Whether thoughts are told. */
        readonly includeThoughts?: boolean | undefined;
      }
    | undefined;
  /** Whether tools have to be called, and which may be. */
  toolChoice?:
    | { readonly mode: Open<"auto" | "none" | "required">; readonly toolNames?: readonly string[] | undefined }
    | undefined;
  /** Whether the provider is to cache the prompt, and for how long, at most a day. */
  cache?: { readonly mode: Open<"on" | "off">; readonly ttlMs?: number | undefined } | undefined;
}

/** McpAttachment names a set of tools of the client, see attachments of AgentdOptions, or some of its tools. */
export interface McpAttachment {
  readonly mcpName: string;
  /** Left out, or empty: all of them. */
  readonly includeToolNames?: readonly string[] | undefined;
}

/** AgentOptions is what all agents have. */
export interface AgentOptions {
  /** Unique in the tree: letters, digits, `_` and `-`, at most 64. */
  name: string;
  /** What the agent is for; a parent reads it to decide a transfer. */
  description?: string | undefined;
}

/**
 * Compaction is when and how the beginning of a conversation is summarised for a model; the session keeps all of it.
 */
export interface Compaction {
  /** Before a call whose prompt takes more than this share of the context window, from 0 to 1; 0 is never. */
  atShare: number;
  /** The context window in tokens; left out: what the server knows. */
  contextTokens?: number | undefined;
  /** The model that writes summaries; left out: the agent's own. */
  model?: string | undefined;
  /** What to keep in mind when summarising. */
  instruction?: string | undefined;
}

/**
 * AgentTool is an agent that another one calls as a tool: with a request, and what it says last is the result. It runs
 * within the turn and spends its budget; its events have a lineage.
 */
export interface AgentTool {
  agent: Agent;
  /** What the caller's model calls it. Default: the agent's name. */
  toolName?: string | undefined;
  /** What the caller's model chooses it by. Default: the agent's own. */
  description?: string | undefined;
  /** What the branches of its calls are named. Default: toolName. */
  branch?: string | undefined;
  /** How deep calls of agents may nest for this one to be called, the outermost being 1. Default: 2. */
  maxDepth?: number | undefined;
  /** What a call sees of its caller's conversation: its request alone, or all that its caller had seen. Default: "fresh". */
  history?: "fresh" | "fork" | undefined;
}

/** BackgroundAgents says what an agent may spawn: others that work in the background, each in a session of its own. */
export interface BackgroundAgents {
  /** How many parents may be above a child. Default: 2. */
  maxDepth?: number | undefined;
  /** How many children of a session may work at a time. Default: 8. */
  maxAtOnce?: number | undefined;
}

/** LlmOptions describes an agent with a model. */
export interface LlmOptions extends AgentOptions {
  /** The model by name, such as `claude-…`, `gpt-…`, `gemini-…` or `provider/model`. */
  model: string;
  /**
   * Models to call, in this order, when the one before has failed for good before any of its text was there; at most 8.
   */
  fallbackModels?: readonly string[] | undefined;
  /** When the conversation is summarised for the model. Default: as the server is set. */
  compaction?: Compaction | undefined;
  /** What the model is told. `{key}` is replaced from the session's state. */
  instruction?: string | undefined;
  /** Names of tools that were added to the client. */
  tools?: readonly string[] | undefined;
  /**
   * Control flow of the server and tools that the model's provider runs, such as `exit_loop`, `ask_user`,
   * `google_search`.
   */
  builtinTools?: readonly string[] | undefined;
  /** Agents to which this one may transfer the conversation. */
  subAgents?: readonly Agent[] | undefined;
  /** Agents that this one may call as it calls tools. */
  agentTools?: readonly AgentTool[] | undefined;
  /** Set, also as {}: this agent may spawn others that work in the background. */
  backgroundAgents?: BackgroundAgents | undefined;
  /** State key that receives the agent's final text. */
  outputKey?: string | undefined;
  /** What the agent's output has to be, as JSON, an object: see input of ToolDefinition. The server validates it. */
  output?: Schema | undefined;
  /** How the model is to write: temperature, longest response, thinking, whether its prompt is cached, and so on. */
  generation?: Generation | undefined;
  /** Sets of tools that were given to the client under a name: their tools are this agent's too. */
  mcpAttachments?: readonly (string | McpAttachment)[] | undefined;
  /** How much of the conversation the model is told: all of it, or the present turn alone. Default: "all". */
  history?: "all" | "turn" | undefined;
}

/** llm is one model with an instruction and tools. */
export function llm(options: LlmOptions): Agent {
  const { name, output, compaction, generation } = options;
  const one: LlmAgentJson = given<LlmAgentJson>({
    instruction: options.instruction,
    toolNames: [...(options.tools ?? [])],
    builtinTools: [...(options.builtinTools ?? [])],
    subAgents: [...(options.subAgents ?? [])] as AgentJson[],
    agentTools: (options.agentTools ?? []).map(agentToolOf),
    outputKey: options.outputKey,
    includeHistory: options.history === "turn" ? "INCLUDE_HISTORY_TURN" : undefined,
    fallbackModels: [...(options.fallbackModels ?? [])],
    generation: generation === undefined ? undefined : generationOf(generation),
    outputSchema: output === undefined ? undefined : schemaText(output, `the output of agent ${name}`),
  });
  if (options.backgroundAgents !== undefined) {
    const { maxDepth, maxAtOnce } = options.backgroundAgents;
    one.backgroundAgents = given<BackgroundAgentsJson>({ maxDepth, maxAtOnce });
  }
  if (compaction !== undefined) one.compaction = compactionOf(compaction); // an empty one is never
  const attachments = (options.mcpAttachments ?? []).map((a) => (typeof a === "string" ? { mcpName: a } : a));
  return {
    name,
    description: options.description ?? "",
    llm: { ...one, model: options.model, ...(attachments.length === 0 ? {} : { mcpAttachments: attachments }) },
  };
}

function agentToolOf({ agent, toolName, description, branch, maxDepth, history }: AgentTool): AgentToolJson {
  const how = given<AgentToolJson>({ toolName, description, branch, maxDepth });
  return { ...how, ...(history === "fork" ? { history: "HISTORY_FORK" as const } : {}), agent: agent as AgentJson };
}

function compactionOf({ atShare, contextTokens, model, instruction }: Compaction): CompactionJson {
  const tokens = contextTokens ?? 0;
  if (!Number.isSafeInteger(tokens) || tokens < 0) {
    throw new AgentdError(
      "INVALID_AGENT_TREE",
      `compaction: contextTokens is ${tokens}, must be a whole number of at least 0`,
    );
  }
  return { atShare, ...given({ contextTokens: tokens === 0 ? "" : String(tokens), model, instruction }) };
}

function generationOf(g: Generation): GenerationSettingsJson {
  const { temperature, topP, stopSequences, seed, thinking, toolChoice, cache } = g;
  const maxOutputTokens = countOf("generation.maxOutputTokens", g.maxOutputTokens);
  const out: GenerationSettingsJson = given({ maxOutputTokens });
  if (temperature !== undefined) out.temperature = temperature;
  if (topP !== undefined) out.topP = topP;
  if (stopSequences !== undefined) out.stopSequences = [...stopSequences];
  if (seed !== undefined) out.seed = seed;
  if (thinking !== undefined) {
    const { effort, budgetTokens, includeThoughts } = thinking;
    out.thinking = given({ includeThoughts });
    if (effort !== undefined) out.thinking.effort = enumOf("EFFORT_", effort as "low");
    if (budgetTokens !== undefined)
      out.thinking.budgetTokens = countOf("generation.thinking.budgetTokens", budgetTokens);
  }
  if (toolChoice !== undefined) {
    out.toolChoice = { mode: enumOf("MODE_", toolChoice.mode as "auto"), toolNames: [...(toolChoice.toolNames ?? [])] };
  }
  if (cache !== undefined) {
    out.cache = { mode: enumOf("MODE_", cache.mode as "on") };
    const ttl = timeOf("generation.cache.ttlMs", cache.ttlMs, { most: dayMs });
    if (ttl !== undefined) out.cache.ttl = ttl;
  }
  return out;
}

/** GroupOptions describes an agent that runs others. */
export interface GroupOptions extends AgentOptions {
  /** At least one. */
  agents: readonly Agent[];
}

/** sequential runs its agents one after the other. */
export function sequential({ name, description = "", agents }: GroupOptions): Agent {
  return { name, description, sequential: { agents: [...agents] } };
}

/** parallel runs its agents at the same time. */
export function parallel({ name, description = "", agents }: GroupOptions): Agent {
  return { name, description, parallel: { agents: [...agents] } };
}

/** loop runs its agents in order, again and again, at most maxIterations times; 0 means the server's default. */
export function loop({
  name,
  description = "",
  agents,
  maxIterations,
}: GroupOptions & { maxIterations?: number | undefined }): Agent {
  const limit = given({ maxIterations: countOf("maxIterations", maxIterations) });
  return { name, description, loop: { agents: [...agents], ...limit } };
}

/** RemoteOptions describes an agent that a backend of the server runs. */
export interface RemoteOptions extends AgentOptions {
  /** A name in the server's file (agentd serve --backends). */
  backend: string;
  /** What the agent is to do. It is text: no key is replaced in it. */
  instruction?: string | undefined;
  /** The model, as the backend names it. */
  model?: string | undefined;
  /** Names of tools that were added to the client. */
  tools?: readonly string[] | undefined;
  /** A tool that ends the agent when it is called: its arguments are the output. It has to be added, too. */
  terminalTool?: string | undefined;
  /** State key that receives what the agent ends with. */
  outputKey?: string | undefined;
  /** How many answers the backend may give to one message; left out: 50. */
  maxTurns?: number | undefined;
  /** How long the backend may take for one message, without its tools; left out: ten minutes. */
  timeoutMs?: number | undefined;
}

/** remote is an agent that a backend of the server runs, such as another agentd. Its tools run at this client. */
export function remote(options: RemoteOptions): Agent {
  const { name, description = "", backend, instruction, model, outputKey, terminalTool } = options;
  const maxTurns = countOf("maxTurns", options.maxTurns);
  const timeout = timeOf("timeoutMs", options.timeoutMs, { most: dayMs });
  const toolNames = [...(options.tools ?? [])];
  const rest = given<RemoteAgentJson>({ instruction, model, outputKey, terminalTool, maxTurns, timeout, toolNames });
  return { name, description, remote: { ...rest, backend } };
}
