// The tools of a tree of agents, out of what a client has.
import { AgentdError } from "./errors.js";
import type { AgentJson, LlmAgentJson, McpAttachmentJson } from "./gen/agentd/v1/types_pb.js";
import type { Tool } from "./tool.js";
import type { ToolSet } from "./toolset.js";

/** Attachments are sets of tools by the name under which agents attach them. */
export type Attachments = Readonly<Record<string, ToolSet>>;

/** A tool that a server asks after each iteration of a loop, though no agent lists it. */
const loopContinue = "loop_continue";

/** The depth of a tree that this client looks at; servers allow far less. */
const maxDepth = 64;

/** Resolved is a tree as it is sent, and the tools that it uses. */
export interface Resolved {
  agent: AgentJson;
  used: Map<string, Tool>;
}

/**
 * resolved has tools of attachments stand in the agents that attach them. It throws INVALID_AGENT_TREE if a tool is not
 * there.
 */
export function resolved(agent: AgentJson, offered: ReadonlyMap<string, Tool>, attachments: Attachments): Resolved {
  const used = new Map<string, Tool>();
  const visit = (node: AgentJson, parents: readonly string[]): AgentJson => {
    const path = [...parents, String(node.name)];
    if (path.length > maxDepth) {
      throw new AgentdError("INVALID_AGENT_TREE", `the tree is more than ${maxDepth} agents deep, or holds itself`);
    }
    const all = (agents: AgentJson[] = []) => agents.map((child) => visit(child, path));
    const { llm, sequential, parallel, loop, remote } = node;
    if (remote !== undefined) {
      const { toolNames = [], terminalTool } = remote;
      const all = terminalTool === undefined ? toolNames : [...toolNames, terminalTool];
      toolsOf({ toolNames: all }, path.join("/"), { offered, attachments, used });
      return node;
    }
    if (llm !== undefined) {
      const toolNames = toolsOf(llm, path.join("/"), { offered, attachments, used });
      const { mcpAttachments: _, agentTools, ...rest } = llm;
      const tools = agentTools?.map((t) => ({ ...t, ...(t.agent && { agent: visit(t.agent, path) }) }));
      return { ...node, llm: { ...rest, ...(tools && { agentTools: tools }), toolNames, subAgents: all(llm.subAgents) } };
    }
    if (loop !== undefined) {
      const tool = offered.get(loopContinue);
      if (tool !== undefined) {
        used.set(loopContinue, tool);
      }
      return { ...node, loop: { ...loop, agents: all(loop.agents) } };
    }
    return sequential !== undefined
      ? { ...node, sequential: { agents: all(sequential.agents) } }
      : parallel !== undefined
        ? { ...node, parallel: { agents: all(parallel.agents) } }
        : node;
  };
  return { agent: visit(agent, []), used };
}

/** withAttachments adds the tools of all attachments, for a session whose last tree is not known here. */
export function withAttachments(offered: ReadonlyMap<string, Tool>, attachments: Attachments): Map<string, Tool> {
  const used = new Map<string, Tool>();
  for (const mcpName of Object.keys(attachments)) {
    toolsOf({ mcpAttachments: [{ mcpName }] }, `attachment ${mcpName}`, { offered, attachments, used });
  }
  return new Map([...offered, ...used]);
}

interface Stock {
  offered: ReadonlyMap<string, Tool>;
  attachments: Attachments;
  used: Map<string, Tool>;
}

/** toolsOf returns the names of the tools of an agent and notes them as used. */
function toolsOf(
  { toolNames = [], mcpAttachments = [] }: LlmAgentJson,
  agent: string,
  { offered, attachments, used }: Stock,
): string[] {
  const fail = (why: string) => new AgentdError("INVALID_AGENT_TREE", why);
  const names = new Set(toolNames);
  for (const name of toolNames) {
    const tool = offered.get(name);
    if (tool === undefined) {
      const named = `agent ${agent} names the tool ${JSON.stringify(name)}`;
      throw fail(`${named}, which was not added to this client; added are: ${listed(offered.keys())}`);
    }
    used.set(name, tool);
  }
  for (const { mcpName = "", includeToolNames = [] } of mcpAttachments as McpAttachmentJson[]) {
    const set = Object.hasOwn(attachments, mcpName) ? attachments[mcpName] : undefined;
    if (set === undefined) {
      const known = listed(Object.keys(attachments));
      throw fail(
        `agent ${agent} attaches ${JSON.stringify(mcpName)}, which is none of the client's attachments: ${known}`,
      );
    }
    const tools = new Map(set.tools);
    for (const name of includeToolNames.length > 0 ? includeToolNames : [...tools.keys()].sort()) {
      const tool = tools.get(name);
      if (tool === undefined) {
        throw fail(
          `agent ${agent}: attachment ${mcpName} has no tool ${JSON.stringify(name)}; it has: ${listed(tools.keys())}`,
        );
      }
      const other = used.get(name) ?? offered.get(name);
      if (other !== undefined && other !== tool) {
        throw fail(`agent ${agent}: attachment ${mcpName}: another tool is also named ${JSON.stringify(name)}`);
      }
      used.set(name, tool);
      names.add(name);
    }
  }
  return [...names];
}

function listed(names: Iterable<string>): string {
  return [...names].sort().join(", ") || "none";
}
