// Agents, tools, usage and error codes.
import { enumDesc, fileDesc, messageDesc } from "@bufbuild/protobuf/codegenv2";
import { file_google_protobuf_duration } from "@bufbuild/protobuf/wkt";
/**
 * Describes the file agentd/v1/types.proto.
 */
export const file_agentd_v1_types = /*@__PURE__*/ fileDesc("ChVhZ2VudGQvdjEvdHlwZXMucHJvdG8SCWFnZW50ZC52MSItCg5GaWVsZFZpb2xhdGlvbhINCgVmaWVsZBgBIAEoCRIMCgRydWxlGAIgASgJIj4KDUV4Y2VlZGVkTGltaXQSDAoEbmFtZRgBIAEoCRINCgV2YWx1ZRgCIAEoAxIQCghyZWNlaXZlZBgDIAEoAyI3CgdXYXJuaW5nEgwKBGNvZGUYASABKAkSDQoFZmllbGQYAiABKAkSDwoHbWVzc2FnZRgDIAEoCSJtCgZCdWRnZXQSEwoLbW9kZWxfY2FsbHMYASABKAMSDgoGdG9rZW5zGAIgASgDEhAKCGNvc3RfdXNkGAMgASgBEiwKCXdhbGxfdGltZRgEIAEoCzIZLmdvb2dsZS5wcm90b2J1Zi5EdXJhdGlvbiKrAQoEVG9vbBIMCgRuYW1lGAEgASgJEhMKC2Rlc2NyaXB0aW9uGAIgASgJEhkKDGlucHV0X3NjaGVtYRgDIAEoCUgAiAEBEioKB3RpbWVvdXQYCiABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb24SFgoObmVlZHNfYXBwcm92YWwYCyABKAgSEAoIZGVmZXJyZWQYDCABKAhCDwoNX2lucHV0X3NjaGVtYSKnAQoEUGFydBIOCgR0ZXh0GAEgASgJSAASJwoGaW5saW5lGAIgASgLMhUuYWdlbnRkLnYxLklubGluZURhdGFIABIiCgRmaWxlGAMgASgLMhIuYWdlbnRkLnYxLkZpbGVVcmlIABIoCgR0b29sGAQgASgLMhguYWdlbnRkLnYxLlRvb2xSZWZlcmVuY2VIAEIJCgdjb250ZW50SgQIBRAGUgdmaWxlX2lkIiIKDVRvb2xSZWZlcmVuY2USEQoJdG9vbF9uYW1lGAEgASgJIi0KCklubGluZURhdGESEQoJbWltZV90eXBlGAEgASgJEgwKBGRhdGEYAiABKAwiKQoHRmlsZVVyaRIRCgltaW1lX3R5cGUYASABKAkSCwoDdXJpGAIgASgJIvABCgVBZ2VudBIMCgRuYW1lGAEgASgJEhMKC2Rlc2NyaXB0aW9uGAIgASgJEiIKA2xsbRgDIAEoCzITLmFnZW50ZC52MS5MbG1BZ2VudEgAEjAKCnNlcXVlbnRpYWwYBCABKAsyGi5hZ2VudGQudjEuU2VxdWVudGlhbEFnZW50SAASLAoIcGFyYWxsZWwYBSABKAsyGC5hZ2VudGQudjEuUGFyYWxsZWxBZ2VudEgAEiQKBGxvb3AYBiABKAsyFC5hZ2VudGQudjEuTG9vcEFnZW50SABCDAoKYWdlbnRfdHlwZUoECBQQFVIGcmVtb3RlIj0KDU1jcEF0dGFjaG1lbnQSEAoIbWNwX25hbWUYASABKAkSGgoSaW5jbHVkZV90b29sX25hbWVzGAIgAygJIp8DCghMbG1BZ2VudBINCgVtb2RlbBgBIAEoCRISCgp0b29sX25hbWVzGAIgAygJEiQKCnN1Yl9hZ2VudHMYAyADKAsyEC5hZ2VudGQudjEuQWdlbnQSEwoLaW5zdHJ1Y3Rpb24YBCABKAkSFQoNYnVpbHRpbl90b29scxgFIAMoCRISCgpvdXRwdXRfa2V5GAYgASgJEjEKD21jcF9hdHRhY2htZW50cxgHIAMoCzIYLmFnZW50ZC52MS5NY3BBdHRhY2htZW50EhoKDW91dHB1dF9zY2hlbWEYCiABKAlIAIgBARIxCgpnZW5lcmF0aW9uGAsgASgLMh0uYWdlbnRkLnYxLkdlbmVyYXRpb25TZXR0aW5ncxIyCg9pbmNsdWRlX2hpc3RvcnkYDCABKA4yGS5hZ2VudGQudjEuSW5jbHVkZUhpc3RvcnkSFwoPZmFsbGJhY2tfbW9kZWxzGA0gAygJEikKCmNvbXBhY3Rpb24YDiABKAsyFS5hZ2VudGQudjEuQ29tcGFjdGlvbkIQCg5fb3V0cHV0X3NjaGVtYSJaCgpDb21wYWN0aW9uEhAKCGF0X3NoYXJlGAEgASgBEhYKDmNvbnRleHRfdG9rZW5zGAIgASgDEg0KBW1vZGVsGAMgASgJEhMKC2luc3RydWN0aW9uGAQgASgJIqUCChJHZW5lcmF0aW9uU2V0dGluZ3MSGAoLdGVtcGVyYXR1cmUYASABKAFIAIgBARISCgV0b3BfcBgCIAEoAUgBiAEBEhkKEW1heF9vdXRwdXRfdG9rZW5zGAMgASgFEhYKDnN0b3Bfc2VxdWVuY2VzGAQgAygJEhEKBHNlZWQYBSABKAVIAogBARIlCgh0aGlua2luZxgGIAEoCzITLmFnZW50ZC52MS5UaGlua2luZxIqCgt0b29sX2Nob2ljZRgHIAEoCzIVLmFnZW50ZC52MS5Ub29sQ2hvaWNlEiUKBWNhY2hlGAggASgLMhYuYWdlbnRkLnYxLlByb21wdENhY2hlQg4KDF90ZW1wZXJhdHVyZUIICgZfdG9wX3BCBwoFX3NlZWQimQEKC1Byb21wdENhY2hlEikKBG1vZGUYASABKA4yGy5hZ2VudGQudjEuUHJvbXB0Q2FjaGUuTW9kZRImCgN0dGwYAiABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb24iNwoETW9kZRIUChBNT0RFX1VOU1BFQ0lGSUVEEAASDAoITU9ERV9PRkYQARILCgdNT0RFX09OEAIi3wEKCFRoaW5raW5nEiwKBmVmZm9ydBgBIAEoDjIaLmFnZW50ZC52MS5UaGlua2luZy5FZmZvcnRIABIXCg1idWRnZXRfdG9rZW5zGAIgASgFSAASGAoQaW5jbHVkZV90aG91Z2h0cxgDIAEoCCJoCgZFZmZvcnQSFgoSRUZGT1JUX1VOU1BFQ0lGSUVEEAASEgoORUZGT1JUX01JTklNQUwQARIOCgpFRkZPUlRfTE9XEAISEQoNRUZGT1JUX01FRElVTRADEg8KC0VGRk9SVF9ISUdIEARCCAoGYW1vdW50IpkBCgpUb29sQ2hvaWNlEigKBG1vZGUYASABKA4yGi5hZ2VudGQudjEuVG9vbENob2ljZS5Nb2RlEhIKCnRvb2xfbmFtZXMYAiADKAkiTQoETW9kZRIUChBNT0RFX1VOU1BFQ0lGSUVEEAASDQoJTU9ERV9BVVRPEAESDQoJTU9ERV9OT05FEAISEQoNTU9ERV9SRVFVSVJFRBADIjMKD1NlcXVlbnRpYWxBZ2VudBIgCgZhZ2VudHMYASADKAsyEC5hZ2VudGQudjEuQWdlbnQiMQoNUGFyYWxsZWxBZ2VudBIgCgZhZ2VudHMYASADKAsyEC5hZ2VudGQudjEuQWdlbnQiRQoJTG9vcEFnZW50EiAKBmFnZW50cxgBIAMoCzIQLmFnZW50ZC52MS5BZ2VudBIWCg5tYXhfaXRlcmF0aW9ucxgCIAEoDSLsAQoFVXNhZ2USFQoNcHJvbXB0X3Rva2VucxgBIAEoAxIZChFjb21wbGV0aW9uX3Rva2VucxgCIAEoAxIVCg1jYWNoZWRfdG9rZW5zGAMgASgDEhoKEmNhY2hlX3dyaXRlX3Rva2VucxgEIAEoAxIXCg90aG91Z2h0c190b2tlbnMYBSABKAMSFAoMdG90YWxfdG9rZW5zGAYgASgDEhMKC21vZGVsX2NhbGxzGAcgASgDEhUKCGNvc3RfdXNkGAggASgBSACIAQESFgoOdW5wcmljZWRfY2FsbHMYCSABKANCCwoJX2Nvc3RfdXNkIqABCgpUb2tlblVzYWdlEhUKDXByb21wdF90b2tlbnMYASABKAUSGQoRY29tcGxldGlvbl90b2tlbnMYAiABKAUSFQoNY2FjaGVkX3Rva2VucxgDIAEoBRIXCg90aG91Z2h0c190b2tlbnMYBCABKAUSFAoMdG90YWxfdG9rZW5zGAUgASgFEhoKEmNhY2hlX3dyaXRlX3Rva2VucxgKIAEoBSJ9CgxVc2FnZVN1bW1hcnkSKgoLdG90YWxfdXNhZ2UYASABKAsyFS5hZ2VudGQudjEuVG9rZW5Vc2FnZRIRCglsbG1fY2FsbHMYAiABKAUSFgoOZXN0aW1hdGVkX2Nvc3QYAyABKAESFgoOdW5wcmljZWRfY2FsbHMYCiABKAUqqQUKCUVycm9yQ29kZRIaChZFUlJPUl9DT0RFX1VOU1BFQ0lGSUVEEAASFwoTRVJST1JfQ09ERV9JTlRFUk5BTBABEiEKHUVSUk9SX0NPREVfSU5WQUxJRF9BR0VOVF9UUkVFEAISGwoXRVJST1JfQ09ERV9SQVRFX0xJTUlURUQQAxIaChZFUlJPUl9DT0RFX0FVVEhfRkFJTEVEEAQSIAocRVJST1JfQ09ERV9TRVNTSU9OX05PVF9GT1VORBAFEiAKHEVSUk9SX0NPREVfTU9ERUxfVU5BVkFJTEFCTEUQBhIWChJFUlJPUl9DT0RFX1RJTUVPVVQQBxIbChdFUlJPUl9DT0RFX1NFU1NJT05fQlVTWRAIEh4KGkVSUk9SX0NPREVfSU5WQUxJRF9SRVFVRVNUEAkSHwobRVJST1JfQ09ERV9CVURHRVRfRVhIQVVTVEVEEAoSHQoZRVJST1JfQ09ERV9MSU1JVF9FWENFRURFRBALEiAKHEVSUk9SX0NPREVfUEVSTUlTU0lPTl9ERU5JRUQQDBIdChlFUlJPUl9DT0RFX0hJU1RPUllfUFVSR0VEEA0SHgoaRVJST1JfQ09ERV9DT05URU5UX0JMT0NLRUQQDhIfChtFUlJPUl9DT0RFX0NPTlRFWFRfVE9PX0xPTkcQDxIaChZFUlJPUl9DT0RFX1VOQVZBSUxBQkxFEBASFwoTRVJST1JfQ09ERV9DT05GTElDVBAREiIKHkVSUk9SX0NPREVfRkFJTEVEX1BSRUNPTkRJVElPThASEh0KGUVSUk9SX0NPREVfT1VUUFVUX0lOVkFMSUQQExIYChRFUlJPUl9DT0RFX05PVF9GT1VORBAUEh4KGkVSUk9SX0NPREVfVU5BVVRIRU5USUNBVEVEEBUqYwoMT25EaXNjb25uZWN0Eh0KGU9OX0RJU0NPTk5FQ1RfVU5TUEVDSUZJRUQQABIaChZPTl9ESVNDT05ORUNUX0NPTlRJTlVFEAESGAoUT05fRElTQ09OTkVDVF9DQU5DRUwQAip1CgZPbkJ1c3kSFwoTT05fQlVTWV9VTlNQRUNJRklFRBAAEhIKDk9OX0JVU1lfUkVKRUNUEAESEwoPT05fQlVTWV9FTlFVRVVFEAISFQoRT05fQlVTWV9JTlRFUlJVUFQQAxISCg5PTl9CVVNZX0lOSkVDVBAEKmQKDkluY2x1ZGVIaXN0b3J5Eh8KG0lOQ0xVREVfSElTVE9SWV9VTlNQRUNJRklFRBAAEhcKE0lOQ0xVREVfSElTVE9SWV9BTEwQARIYChRJTkNMVURFX0hJU1RPUllfVFVSThACKoQBCglBZ2VudEtpbmQSGgoWQUdFTlRfS0lORF9VTlNQRUNJRklFRBAAEhIKDkFHRU5UX0tJTkRfTExNEAESGQoVQUdFTlRfS0lORF9TRVFVRU5USUFMEAISFwoTQUdFTlRfS0lORF9QQVJBTExFTBADEhMKD0FHRU5UX0tJTkRfTE9PUBAEKpMBCgpTdG9wUmVhc29uEhsKF1NUT1BfUkVBU09OX1VOU1BFQ0lGSUVEEAASFAoQU1RPUF9SRUFTT05fU1RPUBABEhoKFlNUT1BfUkVBU09OX01BWF9UT0tFTlMQAhIfChtTVE9QX1JFQVNPTl9DT05URU5UX0JMT0NLRUQQAxIVChFTVE9QX1JFQVNPTl9PVEhFUhAEQjpaOGdpdGh1Yi5jb20vYXB6dWszL2FnZW50ZC9nZW4vcHJvdG8vZ28vYWdlbnRkL3YxO2FnZW50ZHYxYgZwcm90bzM", [file_google_protobuf_duration]);
/**
 * Describes the message agentd.v1.FieldViolation.
 * Use `create(FieldViolationSchema)` to create a new message.
 */
export const FieldViolationSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 0);
/**
 * Describes the message agentd.v1.ExceededLimit.
 * Use `create(ExceededLimitSchema)` to create a new message.
 */
export const ExceededLimitSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 1);
/**
 * Describes the message agentd.v1.Warning.
 * Use `create(WarningSchema)` to create a new message.
 */
export const WarningSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 2);
/**
 * Describes the message agentd.v1.Budget.
 * Use `create(BudgetSchema)` to create a new message.
 */
export const BudgetSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 3);
/**
 * Describes the message agentd.v1.Tool.
 * Use `create(ToolSchema)` to create a new message.
 */
export const ToolSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 4);
/**
 * Describes the message agentd.v1.Part.
 * Use `create(PartSchema)` to create a new message.
 */
export const PartSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 5);
/**
 * Describes the message agentd.v1.ToolReference.
 * Use `create(ToolReferenceSchema)` to create a new message.
 */
export const ToolReferenceSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 6);
/**
 * Describes the message agentd.v1.InlineData.
 * Use `create(InlineDataSchema)` to create a new message.
 */
export const InlineDataSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 7);
/**
 * Describes the message agentd.v1.FileUri.
 * Use `create(FileUriSchema)` to create a new message.
 */
export const FileUriSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 8);
/**
 * Describes the message agentd.v1.Agent.
 * Use `create(AgentSchema)` to create a new message.
 */
export const AgentSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 9);
/**
 * Describes the message agentd.v1.McpAttachment.
 * Use `create(McpAttachmentSchema)` to create a new message.
 */
export const McpAttachmentSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 10);
/**
 * Describes the message agentd.v1.LlmAgent.
 * Use `create(LlmAgentSchema)` to create a new message.
 */
export const LlmAgentSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 11);
/**
 * Describes the message agentd.v1.Compaction.
 * Use `create(CompactionSchema)` to create a new message.
 */
export const CompactionSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 12);
/**
 * Describes the message agentd.v1.GenerationSettings.
 * Use `create(GenerationSettingsSchema)` to create a new message.
 */
export const GenerationSettingsSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 13);
/**
 * Describes the message agentd.v1.PromptCache.
 * Use `create(PromptCacheSchema)` to create a new message.
 */
export const PromptCacheSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 14);
/**
 * Mode is what to do.
 *
 * @generated from enum agentd.v1.PromptCache.Mode
 */
export var PromptCache_Mode;
(function (PromptCache_Mode) {
    /**
     * As the provider does.
     *
     * @generated from enum value: MODE_UNSPECIFIED = 0;
     */
    PromptCache_Mode[PromptCache_Mode["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * The server does not ask for it.
     *
     * @generated from enum value: MODE_OFF = 1;
     */
    PromptCache_Mode[PromptCache_Mode["OFF"] = 1] = "OFF";
    /**
     * The server asks for it where the provider wants to be asked.
     *
     * @generated from enum value: MODE_ON = 2;
     */
    PromptCache_Mode[PromptCache_Mode["ON"] = 2] = "ON";
})(PromptCache_Mode || (PromptCache_Mode = {}));
/**
 * Describes the enum agentd.v1.PromptCache.Mode.
 */
export const PromptCache_ModeSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 14, 0);
/**
 * Describes the message agentd.v1.Thinking.
 * Use `create(ThinkingSchema)` to create a new message.
 */
export const ThinkingSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 15);
/**
 * Effort is how much to think, in words.
 *
 * @generated from enum agentd.v1.Thinking.Effort
 */
export var Thinking_Effort;
(function (Thinking_Effort) {
    /**
     * Not to be sent: without an effort it is the model's default.
     *
     * @generated from enum value: EFFORT_UNSPECIFIED = 0;
     */
    Thinking_Effort[Thinking_Effort["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * As little as the model can.
     *
     * @generated from enum value: EFFORT_MINIMAL = 1;
     */
    Thinking_Effort[Thinking_Effort["MINIMAL"] = 1] = "MINIMAL";
    /**
     * Little.
     *
     * @generated from enum value: EFFORT_LOW = 2;
     */
    Thinking_Effort[Thinking_Effort["LOW"] = 2] = "LOW";
    /**
     * Some.
     *
     * @generated from enum value: EFFORT_MEDIUM = 3;
     */
    Thinking_Effort[Thinking_Effort["MEDIUM"] = 3] = "MEDIUM";
    /**
     * Much.
     *
     * @generated from enum value: EFFORT_HIGH = 4;
     */
    Thinking_Effort[Thinking_Effort["HIGH"] = 4] = "HIGH";
})(Thinking_Effort || (Thinking_Effort = {}));
/**
 * Describes the enum agentd.v1.Thinking.Effort.
 */
export const Thinking_EffortSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 15, 0);
/**
 * Describes the message agentd.v1.ToolChoice.
 * Use `create(ToolChoiceSchema)` to create a new message.
 */
export const ToolChoiceSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 16);
/**
 * Mode is what the model has to do.
 *
 * @generated from enum agentd.v1.ToolChoice.Mode
 */
export var ToolChoice_Mode;
(function (ToolChoice_Mode) {
    /**
     * MODE_AUTO.
     *
     * @generated from enum value: MODE_UNSPECIFIED = 0;
     */
    ToolChoice_Mode[ToolChoice_Mode["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * As it likes.
     *
     * @generated from enum value: MODE_AUTO = 1;
     */
    ToolChoice_Mode[ToolChoice_Mode["AUTO"] = 1] = "AUTO";
    /**
     * No tool is called.
     *
     * @generated from enum value: MODE_NONE = 2;
     */
    ToolChoice_Mode[ToolChoice_Mode["NONE"] = 2] = "NONE";
    /**
     * A tool is called, in each response: the agent needs another way to come to an
     * end, such as `exit_loop`, a transfer, or a limit.
     *
     * @generated from enum value: MODE_REQUIRED = 3;
     */
    ToolChoice_Mode[ToolChoice_Mode["REQUIRED"] = 3] = "REQUIRED";
})(ToolChoice_Mode || (ToolChoice_Mode = {}));
/**
 * Describes the enum agentd.v1.ToolChoice.Mode.
 */
export const ToolChoice_ModeSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 16, 0);
/**
 * Describes the message agentd.v1.SequentialAgent.
 * Use `create(SequentialAgentSchema)` to create a new message.
 */
export const SequentialAgentSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 17);
/**
 * Describes the message agentd.v1.ParallelAgent.
 * Use `create(ParallelAgentSchema)` to create a new message.
 */
export const ParallelAgentSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 18);
/**
 * Describes the message agentd.v1.LoopAgent.
 * Use `create(LoopAgentSchema)` to create a new message.
 */
export const LoopAgentSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 19);
/**
 * Describes the message agentd.v1.Usage.
 * Use `create(UsageSchema)` to create a new message.
 */
export const UsageSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 20);
/**
 * Describes the message agentd.v1.TokenUsage.
 * Use `create(TokenUsageSchema)` to create a new message.
 */
export const TokenUsageSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 21);
/**
 * Describes the message agentd.v1.UsageSummary.
 * Use `create(UsageSummarySchema)` to create a new message.
 */
export const UsageSummarySchema = /*@__PURE__*/ messageDesc(file_agentd_v1_types, 22);
/**
 * ErrorCode is the kind of an error. Codes up to 7 are fixed.
 *
 * @generated from enum agentd.v1.ErrorCode
 */
export var ErrorCode;
(function (ErrorCode) {
    /**
     * Never sent.
     *
     * @generated from enum value: ERROR_CODE_UNSPECIFIED = 0;
     */
    ErrorCode[ErrorCode["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * A fault of the server. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_INTERNAL = 1;
     */
    ErrorCode[ErrorCode["INTERNAL"] = 1] = "INTERNAL";
    /**
     * The agent tree breaks a rule; the message names the agent by its path.
     * Not retryable.
     *
     * @generated from enum value: ERROR_CODE_INVALID_AGENT_TREE = 2;
     */
    ErrorCode[ErrorCode["INVALID_AGENT_TREE"] = 2] = "INVALID_AGENT_TREE";
    /**
     * The provider, or the server, asks to slow down (provider status 429).
     * Retryable.
     *
     * @generated from enum value: ERROR_CODE_RATE_LIMITED = 3;
     */
    ErrorCode[ErrorCode["RATE_LIMITED"] = 3] = "RATE_LIMITED";
    /**
     * A provider key is missing or was refused (401, 403); the message names the
     * key, never its value. The caller itself is ERROR_CODE_UNAUTHENTICATED. Not
     * retryable.
     *
     * @generated from enum value: ERROR_CODE_AUTH_FAILED = 4;
     */
    ErrorCode[ErrorCode["AUTH_FAILED"] = 4] = "AUTH_FAILED";
    /**
     * No such session. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_SESSION_NOT_FOUND = 5;
     */
    ErrorCode[ErrorCode["SESSION_NOT_FOUND"] = 5] = "SESSION_NOT_FOUND";
    /**
     * The model is unknown, cannot be served here, or its provider failed (5xx,
     * a broken or truncated stream). Retryable.
     *
     * @generated from enum value: ERROR_CODE_MODEL_UNAVAILABLE = 6;
     */
    ErrorCode[ErrorCode["MODEL_UNAVAILABLE"] = 6] = "MODEL_UNAVAILABLE";
    /**
     * A deadline passed. Retryable.
     *
     * @generated from enum value: ERROR_CODE_TIMEOUT = 7;
     */
    ErrorCode[ErrorCode["TIMEOUT"] = 7] = "TIMEOUT";
    /**
     * The session already runs a turn. Retryable.
     *
     * @generated from enum value: ERROR_CODE_SESSION_BUSY = 8;
     */
    ErrorCode[ErrorCode["SESSION_BUSY"] = 8] = "SESSION_BUSY";
    /**
     * The request breaks the protocol; the message names the field and the
     * rule. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_INVALID_REQUEST = 9;
     */
    ErrorCode[ErrorCode["INVALID_REQUEST"] = 9] = "INVALID_REQUEST";
    /**
     * The turn's budget is used up. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_BUDGET_EXHAUSTED = 10;
     */
    ErrorCode[ErrorCode["BUDGET_EXHAUSTED"] = 10] = "BUDGET_EXHAUSTED";
    /**
     * A limit of the server was exceeded; the message says which one and what
     * was received. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_LIMIT_EXCEEDED = 11;
     */
    ErrorCode[ErrorCode["LIMIT_EXCEEDED"] = 11] = "LIMIT_EXCEEDED";
    /**
     * The caller may not do this. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_PERMISSION_DENIED = 12;
     */
    ErrorCode[ErrorCode["PERMISSION_DENIED"] = 12] = "PERMISSION_DENIED";
    /**
     * The history that was requested is no longer kept. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_HISTORY_PURGED = 13;
     */
    ErrorCode[ErrorCode["HISTORY_PURGED"] = 13] = "HISTORY_PURGED";
    /**
     * The provider refused the content. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_CONTENT_BLOCKED = 14;
     */
    ErrorCode[ErrorCode["CONTENT_BLOCKED"] = 14] = "CONTENT_BLOCKED";
    /**
     * The prompt does not fit the model's context. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_CONTEXT_TOO_LONG = 15;
     */
    ErrorCode[ErrorCode["CONTEXT_TOO_LONG"] = 15] = "CONTEXT_TOO_LONG";
    /**
     * The server is stopping or its store is not reachable. Retryable.
     *
     * @generated from enum value: ERROR_CODE_UNAVAILABLE = 16;
     */
    ErrorCode[ErrorCode["UNAVAILABLE"] = 16] = "UNAVAILABLE";
    /**
     * Somebody else was there: the version is an older one, or the idempotency key
     * was used for something else. Not retryable as it is.
     *
     * @generated from enum value: ERROR_CODE_CONFLICT = 17;
     */
    ErrorCode[ErrorCode["CONFLICT"] = 17] = "CONFLICT";
    /**
     * What the request is about is not in a state that allows it, such as an
     * interaction that is resolved already; the message names the state. Not
     * retryable.
     *
     * @generated from enum value: ERROR_CODE_FAILED_PRECONDITION = 18;
     */
    ErrorCode[ErrorCode["FAILED_PRECONDITION"] = 18] = "FAILED_PRECONDITION";
    /**
     * The model's response does not fit the output_schema of its agent. Not
     * retryable.
     *
     * @generated from enum value: ERROR_CODE_OUTPUT_INVALID = 19;
     */
    ErrorCode[ErrorCode["OUTPUT_INVALID"] = 19] = "OUTPUT_INVALID";
    /**
     * The session has no such turn or interaction. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_NOT_FOUND = 20;
     */
    ErrorCode[ErrorCode["NOT_FOUND"] = 20] = "NOT_FOUND";
    /**
     * The caller's own credentials for this server are missing or were refused; a
     * provider's key is ERROR_CODE_AUTH_FAILED. Not retryable.
     *
     * @generated from enum value: ERROR_CODE_UNAUTHENTICATED = 21;
     */
    ErrorCode[ErrorCode["UNAUTHENTICATED"] = 21] = "UNAUTHENTICATED";
})(ErrorCode || (ErrorCode = {}));
/**
 * Describes the enum agentd.v1.ErrorCode.
 */
export const ErrorCodeSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 0);
/**
 * OnDisconnect says what happens to a turn whose last client is gone.
 *
 * @generated from enum agentd.v1.OnDisconnect
 */
export var OnDisconnect;
(function (OnDisconnect) {
    /**
     * The server's default for turns that Run starts (--on-disconnect). Unless it is
     * set the turn continues, except where the client that started it cannot know this
     * field, as its first message has none from 10 up: such a client cancels the turn by
     * a reset of its stream with CANCEL, if no other client takes part in it. A lost
     * connection is no reset. Turns of CreateTurn: ON_DISCONNECT_CONTINUE.
     *
     * @generated from enum value: ON_DISCONNECT_UNSPECIFIED = 0;
     */
    OnDisconnect[OnDisconnect["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * The turn continues. When it needs a tool it waits for a client that has it,
     * for as long as the server keeps waiting turns.
     *
     * @generated from enum value: ON_DISCONNECT_CONTINUE = 1;
     */
    OnDisconnect[OnDisconnect["CONTINUE"] = 1] = "CONTINUE";
    /**
     * The turn is canceled, after disconnect_grace.
     *
     * @generated from enum value: ON_DISCONNECT_CANCEL = 2;
     */
    OnDisconnect[OnDisconnect["CANCEL"] = 2] = "CANCEL";
})(OnDisconnect || (OnDisconnect = {}));
/**
 * Describes the enum agentd.v1.OnDisconnect.
 */
export const OnDisconnectSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 1);
/**
 * OnBusy says what happens to a prompt when the session already runs a turn. A
 * turn that only waits for a client which is not there gives way to any prompt
 * but an injected one; one that waits for a person does not.
 *
 * @generated from enum agentd.v1.OnBusy
 */
export var OnBusy;
(function (OnBusy) {
    /**
     * The server's default: ON_BUSY_REJECT.
     *
     * @generated from enum value: ON_BUSY_UNSPECIFIED = 0;
     */
    OnBusy[OnBusy["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * ERROR_CODE_SESSION_BUSY.
     *
     * @generated from enum value: ON_BUSY_REJECT = 1;
     */
    OnBusy[OnBusy["REJECT"] = 1] = "REJECT";
    /**
     * The prompt is recorded, and its turn begins when those before it are over.
     *
     * @generated from enum value: ON_BUSY_ENQUEUE = 2;
     */
    OnBusy[OnBusy["ENQUEUE"] = 2] = "ENQUEUE";
    /**
     * The running turn is canceled, then this one begins.
     *
     * @generated from enum value: ON_BUSY_INTERRUPT = 3;
     */
    OnBusy[OnBusy["INTERRUPT"] = 3] = "INTERRUPT";
    /**
     * The prompt becomes a message of the running turn: the models of its next
     * calls see it. If that turn ends without another model call, the prompt has a
     * turn of its own, as if enqueued.
     *
     * @generated from enum value: ON_BUSY_INJECT = 4;
     */
    OnBusy[OnBusy["INJECT"] = 4] = "INJECT";
})(OnBusy || (OnBusy = {}));
/**
 * Describes the enum agentd.v1.OnBusy.
 */
export const OnBusySchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 2);
/**
 * IncludeHistory is how much of a conversation a model is sent.
 *
 * @generated from enum agentd.v1.IncludeHistory
 */
export var IncludeHistory;
(function (IncludeHistory) {
    /**
     * INCLUDE_HISTORY_ALL.
     *
     * @generated from enum value: INCLUDE_HISTORY_UNSPECIFIED = 0;
     */
    IncludeHistory[IncludeHistory["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * All turns of the session, as far as the agent's branch sees them.
     *
     * @generated from enum value: INCLUDE_HISTORY_ALL = 1;
     */
    IncludeHistory[IncludeHistory["ALL"] = 1] = "ALL";
    /**
     * The present turn alone.
     *
     * @generated from enum value: INCLUDE_HISTORY_TURN = 2;
     */
    IncludeHistory[IncludeHistory["TURN"] = 2] = "TURN";
})(IncludeHistory || (IncludeHistory = {}));
/**
 * Describes the enum agentd.v1.IncludeHistory.
 */
export const IncludeHistorySchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 3);
/**
 * AgentKind is what an agent of a tree is.
 *
 * @generated from enum agentd.v1.AgentKind
 */
export var AgentKind;
(function (AgentKind) {
    /**
     * Never sent.
     *
     * @generated from enum value: AGENT_KIND_UNSPECIFIED = 0;
     */
    AgentKind[AgentKind["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * It asks a model: LlmAgent.
     *
     * @generated from enum value: AGENT_KIND_LLM = 1;
     */
    AgentKind[AgentKind["LLM"] = 1] = "LLM";
    /**
     * It runs others, one after the other: SequentialAgent.
     *
     * @generated from enum value: AGENT_KIND_SEQUENTIAL = 2;
     */
    AgentKind[AgentKind["SEQUENTIAL"] = 2] = "SEQUENTIAL";
    /**
     * It runs others at the same time: ParallelAgent.
     *
     * @generated from enum value: AGENT_KIND_PARALLEL = 3;
     */
    AgentKind[AgentKind["PARALLEL"] = 3] = "PARALLEL";
    /**
     * It runs others again and again: LoopAgent.
     *
     * @generated from enum value: AGENT_KIND_LOOP = 4;
     */
    AgentKind[AgentKind["LOOP"] = 4] = "LOOP";
})(AgentKind || (AgentKind = {}));
/**
 * Describes the enum agentd.v1.AgentKind.
 */
export const AgentKindSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 4);
/**
 * StopReason is why a model ended a response.
 *
 * @generated from enum agentd.v1.StopReason
 */
export var StopReason;
(function (StopReason) {
    /**
     * There is no response yet.
     *
     * @generated from enum value: STOP_REASON_UNSPECIFIED = 0;
     */
    StopReason[StopReason["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * It was done, or called tools.
     *
     * @generated from enum value: STOP_REASON_STOP = 1;
     */
    StopReason[StopReason["STOP"] = 1] = "STOP";
    /**
     * It reached the limit of its output.
     *
     * @generated from enum value: STOP_REASON_MAX_TOKENS = 2;
     */
    StopReason[StopReason["MAX_TOKENS"] = 2] = "MAX_TOKENS";
    /**
     * Its provider did not let it say more.
     *
     * @generated from enum value: STOP_REASON_CONTENT_BLOCKED = 3;
     */
    StopReason[StopReason["CONTENT_BLOCKED"] = 3] = "CONTENT_BLOCKED";
    /**
     * Any other reason.
     *
     * @generated from enum value: STOP_REASON_OTHER = 4;
     */
    StopReason[StopReason["OTHER"] = 4] = "OTHER";
})(StopReason || (StopReason = {}));
/**
 * Describes the enum agentd.v1.StopReason.
 */
export const StopReasonSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_types, 5);
//# sourceMappingURL=types_pb.js.map