/**
 * The client of agentd for browsers and Node.js: the server runs trees of agents, this package runs their tools next to
 * the caller's own data. It speaks agentd.v1.SessionService by Connect over fetch, in JSON, and knows nothing of how a
 * server keeps its promises. What it takes and gives are plain objects.
 *
 * @module
 */
export { Agentd } from "./agentd.js";
export type { AgentDefinition, AgentFilter, AgentRef, Agents, RegisteredAgent } from "./agents.js";
export type { ReconnectPolicy } from "./backoff.js";
export type { TokenSource } from "./credential.js";
export { AgentdError, type ErrorCode, type ErrorDetails, type ExceededLimit, type Violation } from "./errors.js";
export type { AgentKind, AgentOutcome, End, Event, EventBase, EventBody, Lineage, RemoteSession, ToolCall } from "./events.js";
export { EventLog, type EventLogFilter, type LoggedEvent } from "./eventlog.js";
export { Goals, type Goal, type GoalFilter, type GoalOptions } from "./goalcalls.js";
export type { ChildChange, GoalChange } from "./goals.js";
export type { InteractionFilter, Interactions, Question } from "./interactions.js";
export type { JsonObject, JsonValue } from "./json.js";
export {
  citedPart,
  type CallOutcome,
  type Citation,
  type HistoryCompacted,
  type ModelCall,
  type ModelCallEnded,
  type ModelCallFellBack,
  type ProviderToolsUsed,
  type ProviderToolUse,
  type RawPayloadReceived,
} from "./modelevents.js";
export type { AgentdOptions, AttachOptions, Budget, Keys, RunOptions, SeedMessage, WatchOptions } from "./options.js";
export { ToolOutput, type Part, type ResultPart } from "./parts.js";
export type { Prompter } from "./prompts.js";
export type { Result, Run } from "./run.js";
export { Schedules, type Schedule, type ScheduleOptions } from "./schedules.js";
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
export type {
  CreateSessionOptions,
  CreateTokenOptions,
  ForkSessionOptions,
  SessionEvent,
  SessionEventsOptions,
  SessionFields,
  SessionFilter,
  Sessions,
  SessionToken,
  UpdateSessionOptions,
  WatchSessionOptions,
} from "./sessions.js";
export type { SharedState, SharedStateEntry, SharedStateFilter } from "./sharedstate.js";
export { ToolSet, type ToolContext, type ToolDefinition } from "./toolset.js";
export { Transcript, type Message } from "./transcript.js";
export {
  llm,
  loop,
  parallel,
  remote,
  sequential,
  type Agent,
  type AgentTool,
  type AgentOptions,
  type BackgroundAgents,
  type Compaction,
  type Generation,
  type GroupOptions,
  type LlmOptions,
  type McpAttachment,
  type RemoteOptions,
} from "./tree.js";
export type { EventsOptions, TurnFilter, Turns } from "./turns.js";
export type {
  AbortedModelCall,
  ApprovalScope,
  CacheWritePrice,
  CancelReceipt,
  Capabilities,
  Display,
  Interaction,
  InteractionKind,
  InteractionStatus,
  Model,
  ModelCallDetails,
  ModelCapabilities,
  ModelList,
  ModelPrice,
  Open,
  PriceTier,
  Provider,
  Resolution,
  Session,
  SessionState,
  StopReason,
  ToolCallRef,
  Turn,
  TurnStatus,
  Visibility,
  Warning,
} from "./types.js";
export type { Usage } from "./usage.js";
