// Images and other files, in prompts and in the results of tools, and references to tools.
import { create } from "@bufbuild/protobuf";
import { AgentdError } from "./errors.js";
import { PartSchema, type Part as PartMessage } from "./gen/agentd/v1/types_pb.js";
import { byteLength, wellFormed } from "./text.js";

/** Part is a piece of what a user says, or of a tool's result. Which files a model takes is for its provider to say. */
export type Part =
  /** Text, at most 1 MiB. */
  | { readonly text: string }
  /** A file itself, of a media type such as image/png; the server bounds how large a message may be, by default 4 MiB. */
  | { readonly mimeType: string; readonly data: Uint8Array }
  /** A file that the model's provider fetches, or holds: an https, http or gs URI, or the provider's name of a file. */
  | { readonly mimeType: string; readonly uri: string };

/** ResultPart is a piece of a tool's result. */
export type ResultPart =
  | Part
  /** A deferred tool of the agent, which the model may call from now on: with it answers a tool that looks for others. */
  | { readonly toolName: string };

/** The protocol's bounds. */
const maxParts = 64;
const maxText = 1 << 20;
const maxUri = 8192;
const toolPattern = /^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/;
const mimePattern = /^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}\/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}$/;

/** ToolOutput is a result of a tool that has more than text, such as a picture: its run returns one. */
export class ToolOutput {
  /** What run would return without parts. With parts, undefined is no text. */
  readonly output: unknown;
  /** What the model sees behind it: at most 64. */
  readonly parts: readonly ResultPart[];

  constructor(output: unknown, parts: readonly ResultPart[]) {
    this.output = output;
    this.parts = parts;
  }
}

/** promptOf translates parts of a prompt for the wire, as messagesOf does. */
export function promptOf(parts: readonly Part[]): PartMessage[] {
  const i = parts.findIndex((part) => "toolName" in part);
  if (i >= 0) {
    throw new AgentdError("INVALID_REQUEST", `part ${i + 1}: the name of a tool is for the result of a tool, see ToolOutput`);
  }
  return messagesOf(parts);
}

/** messagesOf translates parts for the wire; files are copied. It throws INVALID_REQUEST for those that cannot be sent. */
export function messagesOf(parts: readonly ResultPart[]): PartMessage[] {
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

function messageOfPart(part: ResultPart): PartMessage {
  if ("text" in part) {
    return create(PartSchema, { content: { case: "text", value: wellFormed(part.text) } });
  }
  if ("toolName" in part) {
    return create(PartSchema, { content: { case: "tool", value: { toolName: part.toolName } } });
  }
  const { mimeType } = part;
  if ("data" in part) {
    return create(PartSchema, { content: { case: "inline", value: { mimeType, data: part.data.slice() } } });
  }
  return create(PartSchema, { content: { case: "file", value: { mimeType, uri: wellFormed(part.uri) } } });
}

function problemOf(part: ResultPart): string | undefined {
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

/** partsOf translates parts of a prompt that came; those that this client does not know are left out. */
export function partsOf(messages: readonly PartMessage[]): Part[] {
  return resultPartsOf(messages).flatMap((part): Part[] => ("toolName" in part ? [] : [part]));
}

/** resultPartsOf does what partsOf does for parts of a result. */
export function resultPartsOf(messages: readonly PartMessage[]): ResultPart[] {
  return messages.flatMap(({ content }): ResultPart[] => {
    switch (content.case) {
      case "text":
        return [{ text: content.value }];
      case "inline":
        return [{ mimeType: content.value.mimeType, data: content.value.data }];
      case "file":
        return [{ mimeType: content.value.mimeType, uri: content.value.uri }];
      case "tool":
        return [{ toolName: content.value.toolName }];
      default:
        return [];
    }
  });
}

/** wireSizeOf is how many bytes parts take as JSON, where a file is base64; the names of fields are on the safe side. */
export function wireSizeOf(parts: readonly PartMessage[]): number {
  const around = 64;
  return parts.reduce((sum, { content }) => {
    switch (content.case) {
      case "text":
        return sum + around + byteLength(JSON.stringify(content.value));
      case "inline":
        return sum + around + byteLength(content.value.mimeType) + 4 * Math.ceil(content.value.data.length / 3);
      case "file":
        return sum + around + byteLength(content.value.mimeType) + byteLength(JSON.stringify(content.value.uri));
      case "tool":
        return sum + around + byteLength(content.value.toolName);
      default:
        return sum;
    }
  }, 0);
}

/** sizeOf is about how much parts take. */
export function sizeOf(parts: readonly PartMessage[]): number {
  return parts.reduce((sum, { content }) => {
    switch (content.case) {
      case "text":
        return sum + content.value.length;
      case "inline":
        return sum + content.value.data.length;
      default:
        return sum;
    }
  }, 0);
}
