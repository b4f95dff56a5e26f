// What lists are narrowed by, as the protocol's JSON has it.
import { pageSizeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import { enumOf, given, type Word } from "./json.js";
import type { InteractionStatusJson } from "./gen/agentd/v1/interactions_pb.js";
import type { ListSessionsRequestJson, SessionStateJson, TurnStatusJson } from "./gen/agentd/v1/sessions_pb.js";
import type { SessionFilter } from "./sessions.js";

/** filterOf is a filter of sessions. */
export function filterOf(filter: SessionFilter): ListSessionsRequestJson {
  const { labels, clientRef, states = [], turnStatuses } = filter;
  return given({
    labels,
    clientRef,
    pageSize: pageSizeOf(filter.pageSize),
    states: states.map((state) => enumOf("SESSION_STATE_", state as Word<"SESSION_STATE_", SessionStateJson>)),
    turnStatuses: turnStatusesOf(turnStatuses),
    ...timesOf(filter, ["createdSince", "createdBefore", "updatedSince", "updatedBefore"]),
  });
}

export function turnStatusesOf(statuses: readonly string[] = []): TurnStatusJson[] {
  return statuses.map((status) => enumOf("TURN_STATUS_", status as Word<"TURN_STATUS_", TurnStatusJson>));
}

export function interactionStatusesOf(statuses: readonly string[] = []): InteractionStatusJson[] {
  return statuses.map((status) =>
    enumOf("INTERACTION_STATUS_", status as Word<"INTERACTION_STATUS_", InteractionStatusJson>),
  );
}

/** timesOf are points in time. It throws INVALID_REQUEST for a date that is none. */
export function timesOf<N extends string>(
  of: { readonly [K in N]?: Date | undefined },
  names: readonly N[],
): { [K in N]?: string } {
  const out: { [K in N]?: string } = {};
  for (const name of names) {
    const date: Date | undefined = of[name];
    if (date !== undefined && Number.isNaN(date.getTime())) {
      throw new AgentdError("INVALID_REQUEST", `${name} is no valid date`);
    }
    if (date !== undefined) {
      out[name] = date.toISOString();
    }
  }
  return out;
}
