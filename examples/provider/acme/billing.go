package acme

import "github.com/apzuk3/agentd/model/catalog"

// prices are ACME's, and what its models can do; see catalog.Parse for the form.
var prices = catalog.MustParse("acme.yaml", `
date: 2026-07-24
providers:
  acme:
    rocket-1:
      price: {input: 2, cached: 0.5, output: 8}
      capabilities: {context_tokens: 100000, output_tokens: 8000, thinking: true, tools: true, structured_output: true}
`)
