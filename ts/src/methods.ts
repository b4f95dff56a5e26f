// The methods that this package calls, as JSON has their messages: those of agentd.v1.SessionService by their names, and
// those of other services behind the names of these.
import type * as a from "./gen/agentd/v1/agents_pb.js";
import type * as e from "./gen/agentd/v1/eventlog_pb.js";
import type * as g from "./gen/agentd/v1/goals_pb.js";
import type * as i from "./gen/agentd/v1/interactions_pb.js";
import type * as c from "./gen/agentd/v1/schedules_pb.js";
import type * as s from "./gen/agentd/v1/sessions_pb.js";

/** Methods is what each method takes and returns. */
export interface Methods {
  ApplyAgent: [a.ApplyAgentRequestJson, a.ApplyAgentResponseJson];
  ArchiveAgent: [a.ArchiveAgentRequestJson, a.ArchiveAgentResponseJson];
  DeleteAgent: [a.DeleteAgentRequestJson, a.DeleteAgentResponseJson];
  GetAgent: [a.GetAgentRequestJson, a.GetAgentResponseJson];
  ListAgents: [a.ListAgentsRequestJson, a.ListAgentsResponseJson];
  CancelToolCall: [s.CancelToolCallRequestJson, s.CancelToolCallResponseJson];
  CancelTurn: [s.CancelTurnRequestJson, s.CancelTurnResponseJson];
  CreateSession: [s.CreateSessionRequestJson, s.CreateSessionResponseJson];
  CreateSessionToken: [s.CreateSessionTokenRequestJson, s.CreateSessionTokenResponseJson];
  CreateTurn: [s.CreateTurnRequestJson, s.CreateTurnResponseJson];
  DeleteSession: [s.DeleteSessionRequestJson, s.DeleteSessionResponseJson];
  ForkSession: [s.ForkSessionRequestJson, s.ForkSessionResponseJson];
  GetCapabilities: [s.GetCapabilitiesRequestJson, s.GetCapabilitiesResponseJson];
  GetInteraction: [s.GetInteractionRequestJson, s.GetInteractionResponseJson];
  GetSession: [s.GetSessionRequestJson, s.GetSessionResponseJson];
  GetTurn: [s.GetTurnRequestJson, s.GetTurnResponseJson];
  ListInteractions: [s.ListInteractionsRequestJson, s.ListInteractionsResponseJson];
  ListModelCalls: [s.ListModelCallsRequestJson, s.ListModelCallsResponseJson];
  ListModels: [s.ListModelsRequestJson, s.ListModelsResponseJson];
  ListSessions: [s.ListSessionsRequestJson, s.ListSessionsResponseJson];
  ListSessionEvents: [s.ListSessionEventsRequestJson, s.ListSessionEventsResponseJson];
  ListSharedState: [s.ListSharedStateRequestJson, s.ListSharedStateResponseJson];
  ListTurnEvents: [s.ListTurnEventsRequestJson, s.ListTurnEventsResponseJson];
  ListTurns: [s.ListTurnsRequestJson, s.ListTurnsResponseJson];
  RemoveSharedState: [s.RemoveSharedStateRequestJson, s.RemoveSharedStateResponseJson];
  RaiseInteraction: [i.RaiseInteractionRequestJson, i.RaiseInteractionResponseJson];
  ResolveInteraction: [s.ResolveInteractionRequestJson, s.ResolveInteractionResponseJson];
  SetSharedState: [s.SetSharedStateRequestJson, s.SetSharedStateResponseJson];
  SubmitToolResults: [s.SubmitToolResultsRequestJson, s.SubmitToolResultsResponseJson];
  UpdateSession: [s.UpdateSessionRequestJson, s.UpdateSessionResponseJson];
  CompactSession: [s.CompactSessionRequestJson, s.CompactSessionResponseJson];
  WatchSession: [s.WatchSessionRequestJson, s.WatchSessionResponseJson];
  WatchTurn: [s.WatchTurnRequestJson, s.WatchTurnResponseJson];
  "GoalService/Start": [g.StartGoalRequestJson, g.StartGoalResponseJson];
  "GoalService/Resume": [g.ResumeGoalRequestJson, g.ResumeGoalResponseJson];
  "GoalService/Get": [g.GetGoalRequestJson, g.GetGoalResponseJson];
  "GoalService/List": [g.ListGoalsRequestJson, g.ListGoalsResponseJson];
  "GoalService/Control": [g.ControlGoalRequestJson, g.ControlGoalResponseJson];
  "GoalService/Inject": [g.InjectRequestJson, g.InjectResponseJson];
  "ScheduleService/Create": [c.CreateScheduleRequestJson, c.CreateScheduleResponseJson];
  "ScheduleService/Get": [c.GetScheduleRequestJson, c.GetScheduleResponseJson];
  "ScheduleService/List": [c.ListSchedulesRequestJson, c.ListSchedulesResponseJson];
  "ScheduleService/Delete": [c.DeleteScheduleRequestJson, c.DeleteScheduleResponseJson];
  "EventService/List": [e.ListEventsRequestJson, e.ListEventsResponseJson];
  "EventService/Watch": [e.WatchEventsRequestJson, e.WatchEventsResponseJson];
}
