// What model calls took.
export {};
//# sourceMappingURL=usage.js.map