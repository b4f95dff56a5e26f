// Requests with one reply.
import { AgentdError } from "./errors.js";
/** unary returns a Unary with headers and a time limit in milliseconds. */
export function unary(wire, headers, timeoutMs) {
    return (method, request) => wire.call(method, request, { headers, timeoutMs });
}
/** required returns what a reply must hold. */
export function required(value, what) {
    if (value === undefined) {
        throw new AgentdError("INTERNAL", `the server did not reply with ${what}`);
    }
    return value;
}
/** pages yields the items of all pages of a list; a page is asked for when the items before it were taken. */
export async function* pages(page, convert) {
    let token = "";
    do {
        const { items = [], nextPageToken = "" } = await page(token === "" ? {} : { pageToken: token });
        yield* items.map(convert);
        token = nextPageToken;
    } while (token !== "");
}
//# sourceMappingURL=unary.js.map