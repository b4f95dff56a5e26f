// Images and other files, in prompts and in the results of tools, and references to tools.
import { AgentdError } from "./errors.js";
import { base64Of } from "./json.js";
import { byteLength, wellFormed } from "./text.js";
/** The protocol's bounds. */
const maxParts = 64;
const maxText = 1 << 20;
const maxUri = 8192;
const toolPattern = /^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/;
const mimePattern = /^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}\/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}$/;
/** ToolOutput is a result of a tool that has more than text, such as a picture: its run returns one. */
export class ToolOutput {
    /** What run would return without parts. With parts, undefined is no text. */
    output;
    /** What the model sees behind it: at most 64. */
    parts;
    constructor(output, parts) {
        this.output = output;
        this.parts = parts;
    }
}
/** @internal promptOf translates parts of a prompt for the wire, as messagesOf does. */
export function promptOf(parts) {
    const i = parts.findIndex((part) => "toolName" in part);
    if (i >= 0) {
        throw new AgentdError("INVALID_REQUEST", `part ${i + 1}: the name of a tool is for the result of a tool, see ToolOutput`);
    }
    return messagesOf(parts);
}
/**
 * @internal messagesOf translates parts for the wire; files become base64. It throws INVALID_REQUEST for those that
 * cannot be sent.
 */
export function messagesOf(parts) {
    if (parts.length > maxParts) {
        throw new AgentdError("INVALID_REQUEST", `there are ${parts.length} parts, at most ${maxParts} are allowed`);
    }
    return parts.map((part, i) => {
        const wrong = problemOf(part);
        if (wrong !== undefined) {
            throw new AgentdError("INVALID_REQUEST", `part ${i + 1}: ${wrong}`);
        }
        return messageOfPart(part);
    });
}
function messageOfPart(part) {
    if ("text" in part) {
        return { text: wellFormed(part.text) };
    }
    if ("toolName" in part) {
        return { tool: { toolName: part.toolName } };
    }
    const { mimeType } = part;
    if ("data" in part) {
        return { inline: { mimeType, data: base64Of(part.data) } };
    }
    return { file: { mimeType, uri: wellFormed(part.uri) } };
}
function problemOf(part) {
    if ("text" in part) {
        const size = byteLength(part.text);
        return size > 0 && size <= maxText ? undefined : `a text has 1 to ${maxText} bytes, got ${size}`;
    }
    if ("toolName" in part) {
        return toolPattern.test(part.toolName) ? undefined : `${JSON.stringify(part.toolName)} is no name of a tool`;
    }
    if (!mimePattern.test(part.mimeType)) {
        return `${JSON.stringify(part.mimeType)} is no media type such as image/png`;
    }
    if ("data" in part) {
        if (!(part.data instanceof Uint8Array)) {
            return "data is no Uint8Array";
        }
        return part.data.length > 0 ? undefined : `the file of type ${part.mimeType} is empty`;
    }
    const size = byteLength(part.uri);
    return size > 0 && size <= maxUri ? undefined : `a URI has 1 to ${maxUri} bytes, got ${size}`;
}
/** @internal wireSizeOf is how many bytes parts take as JSON; the names of fields are on the safe side. */
export function wireSizeOf(parts) {
    const around = 64;
    return parts.reduce((sum, part) => sum + around + byteLength(JSON.stringify(part)), 0);
}
/** @internal sizeOf is about how much parts take. */
export function sizeOf(parts) {
    return parts.reduce((sum, { text = "", inline }) => sum + text.length + (inline?.data?.length ?? 0), 0);
}
//# sourceMappingURL=parts.js.map