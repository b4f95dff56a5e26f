package acme

// prices says what ACME's models cost and can do, in the form that docs/providers.md describes.
const prices = `
date: 2026-07-24
providers:
  acme:
    rocket-1:
      price: {input: 2, cached: 0.5, output: 8}
      capabilities: {context_tokens: 100000, output_tokens: 8000, thinking: true, tools: true, structured_output: true}
`
