// What a turn asks a person.
import { enumDesc, fileDesc, messageDesc } from "@bufbuild/protobuf/codegenv2";
import { file_google_protobuf_timestamp } from "@bufbuild/protobuf/wkt";
/**
 * Describes the file agentd/v1/interactions.proto.
 */
export const file_agentd_v1_interactions = /*@__PURE__*/ fileDesc("ChxhZ2VudGQvdjEvaW50ZXJhY3Rpb25zLnByb3RvEglhZ2VudGQudjEi6AMKC0ludGVyYWN0aW9uEgoKAmlkGAEgASgJEhIKCnNlc3Npb25faWQYAiABKAkSDwoHdHVybl9pZBgDIAEoCRIoCgRraW5kGAQgASgOMhouYWdlbnRkLnYxLkludGVyYWN0aW9uS2luZBIsCgZzdGF0dXMYBSABKA4yHC5hZ2VudGQudjEuSW50ZXJhY3Rpb25TdGF0dXMSEgoKYWdlbnRfcGF0aBgGIAMoCRIQCghxdWVzdGlvbhgHIAEoCRIPCgdjaG9pY2VzGAggAygJEhEKCXRvb2xfbmFtZRgJIAEoCRISCgp0b29sX2lucHV0GAogASgJEi8KC2NyZWF0ZV90aW1lGAsgASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcBIsCghlbmRfdGltZRgMIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASKQoKcmVzb2x1dGlvbhgNIAEoCzIVLmFnZW50ZC52MS5SZXNvbHV0aW9uEhQKDHRvb2xfY2FsbF9pZBgPIAEoCRITCgtyZXNvbHZlZF9ieRgQIAEoCRIvCgtleHBpcmVfdGltZRgRIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXBKBAgOEA9SBnNvdXJjZSKOAQoKUmVzb2x1dGlvbhImCgdhcHByb3ZlGAEgASgLMhMuYWdlbnRkLnYxLkFwcHJvdmFsSAASIQoEZGVueRgCIAEoCzIRLmFnZW50ZC52MS5EZW5pYWxIABIQCgZhbnN3ZXIYAyABKAlIABIXCg9pZGVtcG90ZW5jeV9rZXkYCiABKAlCCgoIZGVjaXNpb24iMgoIQXBwcm92YWwSFwoKdG9vbF9pbnB1dBgBIAEoCUgAiAEBQg0KC190b29sX2lucHV0IhgKBkRlbmlhbBIOCgZyZWFzb24YASABKAkqkgEKD0ludGVyYWN0aW9uS2luZBIgChxJTlRFUkFDVElPTl9LSU5EX1VOU1BFQ0lGSUVEEAASHQoZSU5URVJBQ1RJT05fS0lORF9BUFBST1ZBTBABEiIKHklOVEVSQUNUSU9OX0tJTkRfQ0xBUklGSUNBVElPThACEhoKFklOVEVSQUNUSU9OX0tJTkRfSU5QVVQQAyqZAQoRSW50ZXJhY3Rpb25TdGF0dXMSIgoeSU5URVJBQ1RJT05fU1RBVFVTX1VOU1BFQ0lGSUVEEAASHgoaSU5URVJBQ1RJT05fU1RBVFVTX1BFTkRJTkcQARIfChtJTlRFUkFDVElPTl9TVEFUVVNfUkVTT0xWRUQQAhIfChtJTlRFUkFDVElPTl9TVEFUVVNfQ0FOQ0VMRUQQA0I6WjhnaXRodWIuY29tL2FwenVrMy9hZ2VudGQvZ2VuL3Byb3RvL2dvL2FnZW50ZC92MTthZ2VudGR2MWIGcHJvdG8z", [file_google_protobuf_timestamp]);
/**
 * Describes the message agentd.v1.Interaction.
 * Use `create(InteractionSchema)` to create a new message.
 */
export const InteractionSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_interactions, 0);
/**
 * Describes the message agentd.v1.Resolution.
 * Use `create(ResolutionSchema)` to create a new message.
 */
export const ResolutionSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_interactions, 1);
/**
 * Describes the message agentd.v1.Approval.
 * Use `create(ApprovalSchema)` to create a new message.
 */
export const ApprovalSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_interactions, 2);
/**
 * Describes the message agentd.v1.Denial.
 * Use `create(DenialSchema)` to create a new message.
 */
export const DenialSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_interactions, 3);
/**
 * InteractionKind is the kind of a question to a person.
 *
 * @generated from enum agentd.v1.InteractionKind
 */
export var InteractionKind;
(function (InteractionKind) {
    /**
     * Never sent.
     *
     * @generated from enum value: INTERACTION_KIND_UNSPECIFIED = 0;
     */
    InteractionKind[InteractionKind["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * Whether a tool may be called: see Tool.needs_approval.
     *
     * @generated from enum value: INTERACTION_KIND_APPROVAL = 1;
     */
    InteractionKind[InteractionKind["APPROVAL"] = 1] = "APPROVAL";
    /**
     * What was meant: a model asks with the `ask_user` builtin and gives choices.
     *
     * @generated from enum value: INTERACTION_KIND_CLARIFICATION = 2;
     */
    InteractionKind[InteractionKind["CLARIFICATION"] = 2] = "CLARIFICATION";
    /**
     * Anything else: a model asks with the `ask_user` builtin.
     *
     * @generated from enum value: INTERACTION_KIND_INPUT = 3;
     */
    InteractionKind[InteractionKind["INPUT"] = 3] = "INPUT";
})(InteractionKind || (InteractionKind = {}));
/**
 * Describes the enum agentd.v1.InteractionKind.
 */
export const InteractionKindSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_interactions, 0);
/**
 * InteractionStatus is how an interaction is.
 *
 * @generated from enum agentd.v1.InteractionStatus
 */
export var InteractionStatus;
(function (InteractionStatus) {
    /**
     * Never sent.
     *
     * @generated from enum value: INTERACTION_STATUS_UNSPECIFIED = 0;
     */
    InteractionStatus[InteractionStatus["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * It waits for a person.
     *
     * @generated from enum value: INTERACTION_STATUS_PENDING = 1;
     */
    InteractionStatus[InteractionStatus["PENDING"] = 1] = "PENDING";
    /**
     * A person has resolved it.
     *
     * @generated from enum value: INTERACTION_STATUS_RESOLVED = 2;
     */
    InteractionStatus[InteractionStatus["RESOLVED"] = 2] = "RESOLVED";
    /**
     * Nobody waits for it any more: the call was canceled, or its turn is over.
     *
     * @generated from enum value: INTERACTION_STATUS_CANCELED = 3;
     */
    InteractionStatus[InteractionStatus["CANCELED"] = 3] = "CANCELED";
})(InteractionStatus || (InteractionStatus = {}));
/**
 * Describes the enum agentd.v1.InteractionStatus.
 */
export const InteractionStatusSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_interactions, 1);
//# sourceMappingURL=interactions_pb.js.map