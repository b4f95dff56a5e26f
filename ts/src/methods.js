export {};
//# sourceMappingURL=methods.js.map