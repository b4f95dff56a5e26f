/** citedPart is the part of a message's text for which a citation is given; empty when the provider does not say. */
export function citedPart(text, { startByte, endByte }) {
    return new TextDecoder().decode(new TextEncoder().encode(text).subarray(startByte, endByte));
}
//# sourceMappingURL=modelevents.js.map