// Tools: what agents may ask this program to do.
import { AgentdError } from "./errors.js";
import { Tool } from "./tool.js";
/** The protocol's bound of tools of one client. */
const maxTools = 512;
/**
 * ToolSet is a set of tools: those of a client, and those that agents attach under a name. Runs that begin later see
 * what is added.
 */
export class ToolSet {
    #tools = new Map();
    /**
     * addTool adds a tool. It throws INVALID_REQUEST for a name that does not match [A-Za-z_][A-Za-z0-9_.:-]{0,63} or is
     * taken, and for a description or a schema that the protocol does not take.
     */
    addTool(name, definition) {
        if (this.#tools.has(name)) {
            throw new AgentdError("INVALID_REQUEST", `tool ${name} is added twice`);
        }
        if (this.#tools.size === maxTools) {
            throw new AgentdError("INVALID_REQUEST", `tool ${name} is one too many: there may be ${maxTools}`);
        }
        this.#tools.set(name, new Tool(name, definition));
        return this;
    }
    /** @internal */
    get tools() {
        return this.#tools;
    }
}
//# sourceMappingURL=toolset.js.map