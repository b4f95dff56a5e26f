/**
 * The client of agentd for browsers and Node.js: the server runs trees of agents, this package runs their tools next to
 * the caller's own data. It speaks agentd.v1.SessionService by Connect over fetch, in JSON, and knows nothing of how a
 * server keeps its promises. What it takes and gives are plain objects.
 *
 * @module
 */
export { Agentd } from "./agentd.js";
export { AgentdError } from "./errors.js";
export { citedPart, } from "./modelevents.js";
export { ToolOutput } from "./parts.js";
export { jsonSchema, } from "./schema.js";
export { ToolSet } from "./toolset.js";
export { Transcript } from "./transcript.js";
export { llm, loop, parallel, sequential, } from "./tree.js";
//# sourceMappingURL=index.js.map