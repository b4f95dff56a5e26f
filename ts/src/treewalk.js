// The tools of a tree of agents, out of what a client has.
import { AgentdError } from "./errors.js";
/** A tool that a server asks after each iteration of a loop, though no agent lists it. */
const loopContinue = "loop_continue";
/** The depth of a tree that this client looks at; servers allow far less. */
const maxDepth = 64;
/**
 * resolved has tools of attachments stand in the agents that attach them. It throws INVALID_AGENT_TREE if a tool is not
 * there.
 */
export function resolved(agent, offered, attachments) {
    const used = new Map();
    const visit = (node, parents) => {
        const path = [...parents, String(node.name)];
        if (path.length > maxDepth) {
            throw new AgentdError("INVALID_AGENT_TREE", `the tree is more than ${maxDepth} agents deep, or holds itself`);
        }
        const all = (agents = []) => agents.map((child) => visit(child, path));
        const { llm, sequential, parallel, loop } = node;
        if (llm !== undefined) {
            const toolNames = toolsOf(llm, path.join("/"), { offered, attachments, used });
            const { mcpAttachments: _, ...rest } = llm;
            return { ...node, llm: { ...rest, toolNames, subAgents: all(llm.subAgents) } };
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
export function withAttachments(offered, attachments) {
    const used = new Map();
    for (const mcpName of Object.keys(attachments)) {
        toolsOf({ mcpAttachments: [{ mcpName }] }, `attachment ${mcpName}`, { offered, attachments, used });
    }
    return new Map([...offered, ...used]);
}
/** toolsOf returns the names of the tools of an agent and notes them as used. */
function toolsOf({ toolNames = [], mcpAttachments = [] }, agent, { offered, attachments, used }) {
    const fail = (why) => new AgentdError("INVALID_AGENT_TREE", why);
    const names = new Set(toolNames);
    for (const name of toolNames) {
        const tool = offered.get(name);
        if (tool === undefined) {
            const named = `agent ${agent} names the tool ${JSON.stringify(name)}`;
            throw fail(`${named}, which was not added to this client; added are: ${listed(offered.keys())}`);
        }
        used.set(name, tool);
    }
    for (const { mcpName = "", includeToolNames = [] } of mcpAttachments) {
        const set = Object.hasOwn(attachments, mcpName) ? attachments[mcpName] : undefined;
        if (set === undefined) {
            const known = listed(Object.keys(attachments));
            throw fail(`agent ${agent} attaches ${JSON.stringify(mcpName)}, which is none of the client's attachments: ${known}`);
        }
        const tools = new Map(set.tools);
        for (const name of includeToolNames.length > 0 ? includeToolNames : [...tools.keys()].sort()) {
            const tool = tools.get(name);
            if (tool === undefined) {
                throw fail(`agent ${agent}: attachment ${mcpName} has no tool ${JSON.stringify(name)}; it has: ${listed(tools.keys())}`);
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
function listed(names) {
    return [...names].sort().join(", ") || "none";
}
//# sourceMappingURL=treewalk.js.map