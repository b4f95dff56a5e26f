// A page with useChat, whose transport leads to agentd; loaded by chatpage.test.ts.
import { useChat } from "@ai-sdk/react";
import { Agentd, llm } from "@apzuk3/agentd";
import { AgentdChatTransport } from "@apzuk3/agentd/ai";
import { lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { createElement as h, StrictMode } from "react";
import { createRoot } from "react-dom/client";

const agentd = new Agentd(new URLSearchParams(location.search).get("agentd") ?? "").addTool("pay", {
  description: "Pays",
  needsApproval: true,
  run: () => `paid from ${document.title}`,
});
const agent = llm({ name: "payer", model: "scripted/pay", tools: ["pay"] });
const transport = new AgentdChatTransport({ agentd, agent });

function Page() {
  const { messages, status, error, sendMessage, addToolApprovalResponse } = useChat({
    id: location.hash.slice(1),
    resume: true,
    transport,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const parts = messages.flatMap((message) => message.parts.map((part, i) => {
    if (part.type === "text") {
      return h("li", { key: `${message.id} ${i}` }, `${message.role}: ${part.text}`);
    }
    const approval = part.type === "tool-pay" && "approval" in part ? part.approval : undefined;
    const asks = approval !== undefined && "state" in part && part.state === "approval-requested";
    return asks ? h("button", { key: approval.id, onClick: () => void addToolApprovalResponse({ id: approval.id, approved: true }) }, "Yes") : null;
  }));
  return h("main", null,
    h("p", { id: "status" }, error?.message ?? status),
    h("button", { onClick: () => void sendMessage({ text: "pay" }) }, "Ask"),
    h("ol", null, parts));
}

createRoot(document.querySelector("#page")!).render(h(StrictMode, null, h(Page)));
