// What lists are narrowed by, as the protocol's JSON has it.
import { pageSizeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import { enumOf, given } from "./json.js";
/** filterOf is a filter of sessions. */
export function filterOf(filter) {
    const { labels, clientRef, states = [], turnStatuses } = filter;
    return given({
        labels,
        clientRef,
        pageSize: pageSizeOf(filter.pageSize),
        states: states.map((state) => enumOf("SESSION_STATE_", state)),
        turnStatuses: turnStatusesOf(turnStatuses),
        ...timesOf(filter, ["createdSince", "createdBefore", "updatedSince", "updatedBefore"]),
    });
}
export function turnStatusesOf(statuses = []) {
    return statuses.map((status) => enumOf("TURN_STATUS_", status));
}
export function interactionStatusesOf(statuses = []) {
    return statuses.map((status) => enumOf("INTERACTION_STATUS_", status));
}
/** timesOf are points in time. It throws INVALID_REQUEST for a date that is none. */
export function timesOf(of, names) {
    const out = {};
    for (const name of names) {
        const date = of[name];
        if (date !== undefined && Number.isNaN(date.getTime())) {
            throw new AgentdError("INVALID_REQUEST", `${name} is no valid date`);
        }
        if (date !== undefined) {
            out[name] = date.toISOString();
        }
    }
    return out;
}
//# sourceMappingURL=tojson.js.map