/**
 * The client of agentd for browsers and Node.js: the server runs trees of agents, this package runs their tools next to the
 * caller's own data. It speaks agentd.v1.SessionService by Connect over fetch and knows nothing of how a server keeps its
 * promises.
 *
 * @module
 */
export { Agentd } from "./agentd.js";
export type { ReconnectPolicy } from "./backoff.js";
export { AgentdError, type ErrorCodeName, type ErrorDetails, type ExceededLimit, type Violation } from "./errors.js";
export type { End, Event, EventBase, EventBody, ToolCall } from "./events.js";
export type { Interactions } from "./interactions.js";
export {
  citedPart,
  type CallOutcomeName,
  type Citation,
  type HistoryCompacted,
  type ModelCallEnded,
  type ModelFallback,
  type ProviderTools,
  type ProviderToolUse,
  type RawPayload,
  type StopReasonName,
} from "./modelevents.js";
export type { AgentdOptions, AttachOptions, Budget, Keys, RunOptions, Visibility, WatchOptions } from "./options.js";
export { ToolOutput, type Part, type ResultPart } from "./parts.js";
export type { Decision, Prompter } from "./prompts.js";
export type { Result, Run } from "./run.js";
export {
  jsonSchema,
  type InputOf,
  type Issue,
  type JsonSchema,
  type OutputOf,
  type Schema,
  type TypedSchema,
  type Validated,
  type Validator,
} from "./schema.js";
export type { Sessions } from "./sessions.js";
export type { ToolContext, ToolDefinition } from "./tool.js";
export { Transcript, type Message } from "./transcript.js";
export { llm, loop, parallel, sequential, type Agent, type AgentOptions, type Compaction, type GroupOptions, type LlmOptions } from "./tree.js";
export type { EventsOptions, Turns } from "./turns.js";
export { usageOf, type Usage } from "./usage.js";
