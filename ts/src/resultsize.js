// How large a tool's result may be.
import { amountOf } from "./amounts.js";
import { wireSizeOf } from "./parts.js";
import { byteLength } from "./text.js";
import { failed } from "./tool.js";
/** The server's own bounds by default. */
const defaults = { maxResultBytes: 1 << 20, maxMessageBytes: 4 << 20 };
/** What stands around a result where the server measures it: names of fields and ids. It is on the safe side. */
const overhead = 512;
/**
 * limitsOf are the limits with the defaults for what is left out, or undefined. It throws INVALID_REQUEST for what is
 * no bound.
 */
export function limitsOf(options) {
    const limit = (name) => amountOf(name, options[name] ?? defaults[name], { least: 1, whole: true });
    return { maxResultBytes: limit("maxResultBytes"), maxMessageBytes: limit("maxMessageBytes") };
}
/**
 * fitting is a result, or the error in its place when the server would refuse it: the model receives it without a request
 * to the server.
 */
export function fitting(result, limits) {
    const { output, stateDeltaJson = "", parts = [] } = result;
    if (output === undefined) {
        return result;
    }
    const bytes = jsonBytes(JSON.stringify(output)) + jsonBytes(stateDeltaJson) + overhead;
    if (bytes > limits.maxResultBytes) {
        return failed(`the tool's result takes ${bytes} bytes as JSON, at most ${limits.maxResultBytes} are allowed`);
    }
    const whole = bytes + wireSizeOf(parts);
    if (whole > limits.maxMessageBytes) {
        return failed(`the tool's result takes ${whole} bytes with its parts, at most ${limits.maxMessageBytes} are allowed`);
    }
    return result;
}
/** jsonBytes is how long JSON text is as the server's JSON, which escapes two characters that JavaScript's does not. */
function jsonBytes(text) {
    return byteLength(text) + 3 * (text.match(/[\u2028\u2029]/g)?.length ?? 0);
}
//# sourceMappingURL=resultsize.js.map