// The generated protocol, for those who want to speak it themselves.
export * from "./gen/agentd/v1/eventlog_pb.js";
export * from "./gen/agentd/v1/goal_events_pb.js";
export * from "./gen/agentd/v1/goals_pb.js";
export * from "./gen/agentd/v1/interactions_pb.js";
export * from "./gen/agentd/v1/schedules_pb.js";
export * from "./gen/agentd/v1/service_pb.js";
export * from "./gen/agentd/v1/sessions_pb.js";
export * from "./gen/agentd/v1/types_pb.js";
export { durationFromMs, durationMs, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
