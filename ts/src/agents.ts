// Agent trees that the server keeps.
import { countOf } from "./amounts.js";
import type { ApplyAgentRequestJson, ListAgentsRequestJson, RegisteredAgentJson } from "./gen/agentd/v1/agents_pb.js";
import type { AgentJson, AgentRefJson, ToolJson } from "./gen/agentd/v1/types_pb.js";
import { dateOf, given } from "./json.js";
import type { Tool } from "./tool.js";
import type { Agent } from "./tree.js";
import { resolved, type Attachments } from "./treewalk.js";
import { pages, required, type Unary } from "./unary.js";

/** AgentRef names an agent tree that the server keeps. */
export interface AgentRef {
  /**
   * What it is called, or that with `@` and the first 8 or more digits of the contentHash of one of its versions.
   */
  readonly name: string;
  /** Which version; left out, or 0: the newest one. */
  readonly version?: number | undefined;
}

/** AgentDefinition is what an agent is to be. */
export interface AgentDefinition {
  /** What it is called: 1 to 128 of A-Z, a-z, 0-9 and . _ : -, a letter or a digit first. */
  name: string;
  /** The tree. Its tools are those of the client: only what they declare is sent. */
  agent: Agent;
  /** An object of the caller's own, at most 16,384 bytes as JSON; a part of the content. */
  metadata?: Readonly<Record<string, unknown>> | undefined;
  /** The version that the caller has read, 0 if there must be none; another one is CONFLICT. */
  read?: number | undefined;
  /** Only says what would become of it. */
  dryRun?: boolean | undefined;
}

/** RegisteredAgent is one version of an agent tree that the server keeps. */
export interface RegisteredAgent {
  readonly name: string;
  readonly version: number;
  /** The SHA-256 of what it says, in hexadecimal digits. */
  readonly contentHash: string;
  readonly agent: Agent;
  /** The tools that it may call. */
  readonly toolNames: readonly string[];
  readonly metadata: Readonly<Record<string, unknown>> | undefined;
  /** Who has made this version, as the server knows them. */
  readonly createdBy: string;
  readonly createTime: Date | undefined;
  /** When the first version was made. */
  readonly firstCreateTime: Date | undefined;
  /** Undefined if it is not archived. */
  readonly archiveTime: Date | undefined;
}

/** AgentFilter says which agents to list. */
export interface AgentFilter {
  /** Lists the versions of this agent; left out: the newest version of each. */
  name?: string | undefined;
  /** Also those that are archived. */
  archived?: boolean | undefined;
  /** How many to read with one request at most; left out, or 0: the server's own. */
  pageSize?: number | undefined;
}

/**
 * Agents keeps agent trees on the server by name, for RunOptions.agentRef and sessions.create. Each method makes one
 * request, a list one for each page, and throws an AgentdError.
 */
export class Agents {
  readonly #unary: Unary;
  readonly #tools: () => ReadonlyMap<string, Tool>;
  readonly #attachments: Attachments;

  /** @internal */
  constructor(unary: Unary, tools: () => ReadonlyMap<string, Tool>, attachments: Attachments) {
    this.#unary = unary;
    this.#tools = tools;
    this.#attachments = attachments;
  }

  /**
   * apply makes an agent be what the definition says: what the name has already is not made again, another tree is a new
   * version.
   */
  async apply(definition: AgentDefinition): Promise<{ agent: RegisteredAgent; created: boolean }> {
    const { name, read, dryRun } = definition;
    const tree = resolved(definition.agent as AgentJson, this.#tools(), this.#attachments);
    const metadata = definition.metadata as ApplyAgentRequestJson["metadata"];
    const tools: ToolJson[] = [...tree.used.values()].map(({ declaration }) => declaration);
    const request = given<ApplyAgentRequestJson>({ name, agent: tree.agent, tools, metadata, dryRun });
    const version = read === undefined ? undefined : countOf("read", read);
    const { agent, created = false } = await this.#unary("ApplyAgent", {
      ...request,
      ...(version === undefined ? {} : { version: String(version) }),
    });
    return { agent: agentOf(required(agent, "an agent")), created };
  }

  /** get returns a version of an agent. One that there is not is NOT_FOUND. */
  async get(ref: AgentRef): Promise<RegisteredAgent> {
    const { agent } = await this.#unary("GetAgent", { agentRef: refJson(ref) });
    return agentOf(required(agent, "an agent"));
  }

  /** list yields agents, newest first, page by page. */
  list(filter: AgentFilter = {}): AsyncGenerator<RegisteredAgent, void, undefined> {
    const { name, archived } = filter;
    const request = given<ListAgentsRequestJson>({ name, archived, pageSize: countOf("pageSize", filter.pageSize) });
    return pages(async (page) => {
      const { agents, nextPageToken } = await this.#unary("ListAgents", { ...request, ...page });
      return { items: agents, nextPageToken };
    }, agentOf);
  }

  /** archive keeps an agent from being used by new sessions and turns, and from being changed. */
  async archive(name: string): Promise<RegisteredAgent> {
    return agentOf(required((await this.#unary("ArchiveAgent", { name })).agent, "an agent"));
  }

  /** delete removes an agent with all its versions. */
  async delete(name: string): Promise<void> {
    await this.#unary("DeleteAgent", { name });
  }
}

/** refJson is an AgentRef as it is sent. @internal */
export function refJson({ name, version = 0 }: AgentRef): AgentRefJson {
  return version === 0 ? { name } : { name, version: String(countOf("version", version)) };
}

/** refOf is an AgentRef of the server. @internal */
export function refOf(json: AgentRefJson | undefined): AgentRef | undefined {
  return json === undefined ? undefined : { name: json.name ?? "", version: Number(json.version ?? 0) };
}

function agentOf(json: RegisteredAgentJson): RegisteredAgent {
  return {
    name: json.name ?? "",
    version: Number(json.version ?? 0),
    contentHash: json.contentHash ?? "",
    agent: (json.agent ?? {}) as Agent,
    toolNames: (json.tools ?? []).map(({ name = "" }) => name),
    metadata: json.metadata,
    createdBy: json.createdBy ?? "",
    createTime: dateOf(json.createTime),
    firstCreateTime: dateOf(json.firstCreateTime),
    archiveTime: dateOf(json.archiveTime),
  };
}
