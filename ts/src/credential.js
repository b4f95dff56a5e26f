// What a client proves with who it is.
import { AgentdError } from "./errors.js";
import { messageOf } from "./text.js";
import { follows, orAborted } from "./wait.js";
/** Headers by which a request says who makes it. */
const credentials = ["authorization", "x-api-key"];
/** Credential is the token of a client, or none. */
export class Credential {
    #source;
    #timeoutMs;
    /** The source has so many milliseconds for each token. It throws INVALID_REQUEST for what is no token. */
    constructor(token, timeoutMs) {
        if (typeof token === "string") {
            const text = checked(token); // also of a file that ends with a line feed
            this.#source = () => text;
        }
        else if (token === undefined || typeof token === "function") {
            this.#source = token;
        }
        else {
            throw new AgentdError("INVALID_REQUEST", "token must be a text or a function that returns one");
        }
        this.#timeoutMs = timeoutMs;
    }
    /**
     * token asks for the token of the next request; undefined if none is sent. It throws UNAVAILABLE where the source has
     * none, or the signal's reason.
     */
    async token(signal) {
        const source = this.#source;
        if (source === undefined) {
            return undefined;
        }
        const { controller, release } = follows(signal);
        const late = new Error(`its source has returned nothing for ${this.#timeoutMs} ms`);
        const timer = setTimeout(() => controller.abort(late), this.#timeoutMs);
        try {
            return checked(await orAborted((async () => source())(), controller.signal));
        }
        catch (thrown) {
            signal.throwIfAborted();
            const why = `the token of this client cannot be had: ${messageOf(thrown)}`;
            throw new AgentdError("UNAVAILABLE", why, { cause: thrown });
        }
        finally {
            clearTimeout(timer);
            release();
        }
    }
    /**
     * renewed tells whether a stream whose token the server has refused is worth another try: the source has another
     * token, or cannot say now whether it has.
     */
    async renewed(refused, signal) {
        try {
            return (await this.token(signal)) !== refused;
        }
        catch {
            signal.throwIfAborted();
            return true;
        }
    }
    /** mustBeAlone throws INVALID_REQUEST where headers have a credential besides the token. */
    mustBeAlone(headers) {
        const other = this.#source === undefined ? undefined : credentials.find((name) => headers.has(name));
        if (other !== undefined) {
            throw new AgentdError("INVALID_REQUEST", `there is a token, and headers has ${other} too: leave one of them out`);
        }
    }
}
/** checked is a token without the white space around it. What it throws does not hold the token. */
function checked(token) {
    const text = typeof token === "string" ? token.trim() : "";
    if (!/^[\x21-\x7e]+$/.test(text)) {
        const is = typeof token !== "string" ? `is ${typeof token}` : text === "" ? "is empty" : "has other characters";
        throw new AgentdError("INVALID_REQUEST", `the token ${is}, must be a text of ASCII characters without spaces`);
    }
    return text;
}
//# sourceMappingURL=credential.js.map