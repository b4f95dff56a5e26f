/**
 * Transcript puts the text of a turn together, message by message, and drops what is retracted.
 *
 * A message is finished when the server says so, or has moved on: another message of its agent has begun, its model
 * call was over, the agent's last piece or a call of it came, the state changed, or a piece said when it happened, as
 * only text that is complete does. Of agents that speak at the same time one may have changed the state while another
 * spoke; so a retract of all unfinished messages also has each finished one start over if it is ever said again.
 */
export class Transcript {
    #drafts = new Map(); // by agent and id, in the order in which they began
    #open = new Map(); // by agent: the message that is not finished
    /** add takes up the next event. */
    add(event) {
        switch (event.type) {
            case "output_chunk":
                this.#piece(event);
                break;
            case "message_retracted":
                this.#retract(event.messageId);
                break;
            case "state_update":
                this.#open.clear();
                break;
            case "tool_call":
            case "tool_call_announced":
                this.#open.delete(keyOf(event.agentPath));
                break;
            case "message_completed": {
                const agent = keyOf(event.agentPath);
                if (this.#open.get(agent)?.id === event.messageId) {
                    this.#open.delete(agent);
                }
                break;
            }
            case "model_call_ended":
                this.#open.delete(keyOf(event.agentPath));
                break;
            default:
        }
    }
    /** messages returns what was said, in the order in which it began. */
    get messages() {
        return Array.from(this.#drafts.values(), ({ id, agentPath, text, thoughts }) => ({
            id,
            agentPath,
            text,
            thoughts,
        })).filter((m) => m.text !== "" || m.thoughts !== "");
    }
    /**
     * text is what all agents said, one after the other in the order in which they first spoke, with an empty line
     * between them. Of a tree with one agent it is exactly the model's text.
     */
    get text() {
        const byAgent = new Map();
        for (const { agent, text } of this.#drafts.values()) {
            byAgent.set(agent, (byAgent.get(agent) ?? "") + text);
        }
        return [...byAgent.values()].filter((text) => text !== "").join("\n\n");
    }
    #piece(event) {
        const agent = keyOf(event.agentPath);
        if (event.content !== "") {
            const key = JSON.stringify([agent, event.messageId]);
            let draft = this.#drafts.get(key);
            if (draft === undefined) {
                draft = { id: event.messageId, agent, agentPath: event.agentPath, text: "", thoughts: "", restarts: false };
                this.#drafts.set(key, draft);
            }
            if (draft.restarts) {
                drop(draft);
            }
            if (event.isThought) {
                draft.thoughts += event.content;
            }
            else {
                draft.text += event.content;
            }
            this.#open.set(agent, draft);
            if (event.time !== undefined) {
                this.#open.delete(agent);
            }
        }
        if (event.last) {
            this.#open.delete(agent);
        }
    }
    #retract(id) {
        for (const draft of this.#drafts.values()) {
            if (draft.id === "") {
                continue;
            }
            if (id === "" ? this.#open.get(draft.agent) === draft : draft.id === id) {
                drop(draft);
            }
            else if (id === "") {
                draft.restarts = true;
            }
        }
    }
}
function drop(draft) {
    draft.text = "";
    draft.thoughts = "";
    draft.restarts = false;
}
function keyOf(agentPath) {
    return JSON.stringify(agentPath);
}
//# sourceMappingURL=transcript.js.map