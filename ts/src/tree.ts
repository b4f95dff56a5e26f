// Trees of agents.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { AgentSchema, CompactionSchema, GenerationSettingsSchema, IncludeHistory, type Agent as AgentMessage } from "./gen/agentd/v1/types_pb.js";
import { AgentdError } from "./errors.js";
import { schemaText, type Schema } from "./schema.js";

/** Agent is a node of a tree: what {@link llm}, {@link sequential}, {@link parallel} and {@link loop} make. */
export type Agent = MessageInitShape<typeof AgentSchema>;

/** AgentOptions is what all agents have. */
export interface AgentOptions {
  /** Unique in the tree: letters, digits, `_` and `-`, at most 64. */
  name: string;
  /** What the agent is for; a parent reads it to decide a transfer. */
  description?: string;
}

/** Compaction is when and how the beginning of a conversation is summarised for a model; the session keeps all of it. */
export interface Compaction {
  /** Before a call whose prompt takes more than this share of the context window, from 0 to 1; 0 is never. */
  atShare: number;
  /** The context window in tokens; left out: what the server knows. */
  contextTokens?: number;
  /** The model that writes summaries; left out: the agent's own. */
  model?: string;
  /** What to keep in mind when summarising. */
  instruction?: string;
}

/** LlmOptions describes an agent with a model. */
export interface LlmOptions extends AgentOptions {
  /** The model by name, such as `claude-…`, `gpt-…`, `gemini-…` or `provider/model`. */
  model: string;
  /** Models to call, in this order, when the one before has failed for good before any of its text was there; at most 8. */
  fallbackModels?: readonly string[];
  /** When the conversation is summarised for the model. Default: as the server is set. */
  compaction?: Compaction;
  /** What the model is told. `{key}` is replaced from the session's state. */
  instruction?: string;
  /** Names of tools that were added to the client. */
  tools?: readonly string[];
  /** Control flow of the server and tools that the model's provider runs, such as `exit_loop`, `ask_user`, `google_search`. */
  builtinTools?: readonly string[];
  /** Agents to which this one may transfer the conversation. */
  subAgents?: readonly Agent[];
  /** State key that receives the agent's final text. */
  outputKey?: string;
  /** What the agent's output has to be, as JSON, an object: see input of ToolDefinition. The server validates it. */
  output?: Schema;
  /** How the model is to write: temperature, longest answer, thinking, whether its prompt is cached, and so on. */
  generation?: MessageInitShape<typeof GenerationSettingsSchema>;
  /** How much of the conversation the model is told: all of it, or the present turn alone. Default: "all". */
  history?: "all" | "turn";
}

/** llm is one model with an instruction and tools. */
export function llm(options: LlmOptions): Agent {
  return {
    name: options.name,
    description: options.description ?? "",
    agentType: {
      case: "llm",
      value: {
        model: options.model,
        instruction: options.instruction ?? "",
        toolNames: [...(options.tools ?? [])],
        builtinTools: [...(options.builtinTools ?? [])],
        subAgents: [...(options.subAgents ?? [])],
        outputKey: options.outputKey ?? "",
        includeHistory: options.history === "turn" ? IncludeHistory.TURN : IncludeHistory.ALL,
        fallbackModels: [...(options.fallbackModels ?? [])],
        ...(options.compaction === undefined ? {} : { compaction: compactionOf(options.compaction) }),
        ...(options.generation === undefined ? {} : { generation: options.generation }),
        ...(options.output === undefined ? {} : { outputSchema: schemaText(options.output, `the output of agent ${options.name}`) }),
      },
    },
  };
}

function compactionOf({ atShare, contextTokens = 0, model = "", instruction = "" }: Compaction): MessageInitShape<typeof CompactionSchema> {
  if (!Number.isSafeInteger(contextTokens) || contextTokens < 0) {
    throw new AgentdError("INVALID_AGENT_TREE", `compaction: contextTokens is ${contextTokens}, must be a whole number of at least 0`);
  }
  return { atShare, contextTokens: BigInt(contextTokens), model, instruction };
}

/** GroupOptions describes an agent that runs others. */
export interface GroupOptions extends AgentOptions {
  /** At least one. */
  agents: readonly Agent[];
}

/** sequential runs its agents one after the other. */
export function sequential(options: GroupOptions): Agent {
  const { name, description = "", agents } = options;
  return { name, description, agentType: { case: "sequential", value: { agents: [...agents] } } };
}

/** parallel runs its agents at the same time. */
export function parallel(options: GroupOptions): Agent {
  const { name, description = "", agents } = options;
  return { name, description, agentType: { case: "parallel", value: { agents: [...agents] } } };
}

/** loop runs its agents in order, again and again, at most maxIterations times; 0 means the server's default. */
export function loop(options: GroupOptions & { maxIterations?: number }): Agent {
  const { name, description = "", agents, maxIterations = 0 } = options;
  return { name, description, agentType: { case: "loop", value: { agents: [...agents], maxIterations } } };
}

/** A tool that a server asks after each iteration of a loop, though no agent lists it. */
const loopContinue = "loop_continue";

/** toolsOf returns the names of the tools that a tree uses. It throws if one is not offered. */
export function toolsOf(agent: Agent, offered: ReadonlySet<string>): Set<string> {
  const used = new Set<string>();
  const visit = (node: AgentMessage, parents: readonly string[]) => {
    const path = [...parents, node.name];
    const { case: kind, value } = node.agentType;
    if (kind === "llm") {
      for (const name of value.toolNames) {
        if (!offered.has(name)) {
          const known = offered.size === 0 ? "none" : [...offered].sort().join(", ");
          const named = `agent ${path.join("/")} names the tool ${JSON.stringify(name)}`;
          throw new AgentdError("INVALID_AGENT_TREE", `${named}, which was not added to this client; added are: ${known}`);
        }
        used.add(name);
      }
    }
    if (kind === "loop" && offered.has(loopContinue)) {
      used.add(loopContinue);
    }
    for (const child of kind === "llm" ? value.subAgents : (value?.agents ?? [])) {
      visit(child, path);
    }
  };
  visit(create(AgentSchema, agent), []);
  return used;
}
