package providertest

import "encoding/json"

// streamGemini cuts the first candidate into chunks. What belongs to the whole
// answer (finish reason, grounding) comes with the last chunk; the usage grows.
// Only single candidates are streamed, as nobody asks for several.
func streamGemini(body object) []event {
	candidates := body.list("candidates")
	if len(candidates) == 0 {
		// A blocked prompt has no candidates, and one chunk says so.
		return []event{{data: string(encode(body))}}
	}
	last := candidates[0]
	content := last.obj("content")
	chunks := geminiChunks(content.list("parts"))
	var events []event
	for i, parts := range chunks {
		candidate := object{"index": encode(0)}
		if i == len(chunks)-1 {
			candidate = last
		}
		if len(parts) > 0 {
			candidate = candidate.with("content", content.with("parts", parts))
		}
		chunk := body.with("candidates", []object{candidate})
		if i < len(chunks)-1 && body.has("usageMetadata") {
			chunk["usageMetadata"] = encode(partialUsage(body.obj("usageMetadata"), i+1, len(chunks)))
		}
		events = append(events, event{data: string(encode(chunk))})
	}
	return events
}

// geminiChunks distributes parts over chunks: texts in pieces, the signature on
// the last; tool calls without ids together, as models before Gemini 3 send
// them, those with ids one by one and an empty text behind them.
func geminiChunks(parts []object) [][]object {
	chunks := [][]object{}
	together := false
	for _, part := range parts {
		call := part.obj("functionCall")
		switch {
		case part.has("text"):
			chunks = append(chunks, textChunks(part)...)
		case part.has("functionCall") && !call.has("id") && together:
			chunks[len(chunks)-1] = append(chunks[len(chunks)-1], part)
		default:
			chunks = append(chunks, []object{part})
		}
		together = part.has("functionCall") && !call.has("id")
	}
	if n := len(parts); n > 0 && parts[n-1].obj("functionCall").has("id") {
		chunks = append(chunks, []object{{"text": encode("")}})
	}
	if len(chunks) == 0 {
		chunks = append(chunks, nil)
	}
	return chunks
}

func textChunks(part object) [][]object {
	texts := pieces(part.str("text"))
	if len(texts) == 0 {
		texts = []string{""}
	}
	var chunks [][]object
	for i, piece := range texts {
		p := part.with("text", piece)
		if i < len(texts)-1 {
			delete(p, "thoughtSignature")
		}
		chunks = append(chunks, []object{p})
	}
	return chunks
}

// partialUsage is the usage after n of total chunks: the prompt and the thoughts
// are known from the start, the candidates' tokens grow, and the sum with them.
func partialUsage(usage object, n, total int) object {
	var tokens, sum int64
	// Absent counts are zero.
	_ = json.Unmarshal(usage["candidatesTokenCount"], &tokens)
	_ = json.Unmarshal(usage["totalTokenCount"], &sum)
	partial := tokens * int64(n) / int64(total)
	u := usage.with("candidatesTokenCount", partial)
	u["totalTokenCount"] = encode(sum - tokens + partial)
	delete(u, "candidatesTokensDetails")
	return u
}
