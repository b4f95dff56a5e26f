// The way to the server.
import { AgentdError } from "./errors.js";
import { messageOf } from "./text.js";
/** addressOf checks a server's URL. In a page it may be relative to the page. */
export function addressOf(url) {
    const page = typeof location === "undefined" ? undefined : location.href;
    let protocol = "";
    try {
        ({ protocol } = new URL(url, page));
    }
    catch {
        // It is none.
    }
    if (protocol !== "http:" && protocol !== "https:") {
        throw new AgentdError("INVALID_REQUEST", `${JSON.stringify(url)} is not the URL of a server, such as "http://127.0.0.1:8080"`);
    }
    return url;
}
/** reaching is a fetch that says whom it could not reach, and why as far as that is known. */
export function reaching(server, fetch = (...request) => globalThis.fetch(...request)) {
    return async (input, init) => {
        try {
            return await fetch(input, init);
        }
        catch (thrown) {
            if (init?.signal?.aborted === true || !(thrown instanceof TypeError)) {
                throw thrown;
            }
            throw new AgentdError("UNAVAILABLE", `${server} cannot be reached: ${reasonOf(thrown)}`, { cause: thrown });
        }
    };
}
/** reasonOf is why a fetch has failed. Browsers do not say it, and hide from a page what does not let its origin in. */
function reasonOf(thrown) {
    const { cause } = thrown;
    if (cause !== undefined) {
        // Of several addresses none has responded: such an error has no message, but a code.
        return messageOf(cause) || String(cause.code);
    }
    const { origin } = globalThis.location ?? {};
    return (messageOf(thrown) +
        (origin === undefined ? "" : `; if it serves, does it let this page in (agentd serve --cors-origins=${origin})?`));
}
//# sourceMappingURL=reach.js.map