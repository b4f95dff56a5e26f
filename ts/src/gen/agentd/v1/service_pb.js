// The agentd protocol: agents run on the server, tools run on the client.
//
// A client opens one bidirectional stream, sends an ExecuteRequest that holds
// a tree of agents, the tools it offers and a prompt, and then reads events
// until EndResponse. When an agent wants a tool, the server sends a
// ToolCallRequest; the client runs the tool next to its own data and sends
// a ToolCallResponse that holds only what the model may see.
//
// Every field number, name and JSON name up to 9 (and up to 19 inside a oneof)
// is fixed: clients that are already deployed speak it. New fields of these
// messages start at 10, new oneof members at 20, so that such clients skip
// them.
//
// A client skips what it does not know of a reply. A server refuses a request with a
// field, or a member of a oneof, that it does not know, with
// ERROR_CODE_INVALID_REQUEST: GetCapabilitiesResponse.features says what it knows.
import { enumDesc, fileDesc, messageDesc, serviceDesc } from "@bufbuild/protobuf/codegenv2";
import { file_agentd_v1_interactions } from "./interactions_pb.js";
import { file_agentd_v1_types } from "./types_pb.js";
import { file_google_protobuf_duration, file_google_protobuf_struct, file_google_protobuf_timestamp } from "@bufbuild/protobuf/wkt";
/**
 * Describes the file agentd/v1/service.proto.
 */
export const file_agentd_v1_service = /*@__PURE__*/ fileDesc("ChdhZ2VudGQvdjEvc2VydmljZS5wcm90bxIJYWdlbnRkLnYxIooMCgpSdW5SZXF1ZXN0EjcKB2V4ZWN1dGUYASABKAsyJC5hZ2VudGQudjEuUnVuUmVxdWVzdC5FeGVjdXRlUmVxdWVzdEgAEjsKCWhlYXJ0YmVhdBgCIAEoCzImLmFnZW50ZC52MS5SdW5SZXF1ZXN0LkhlYXJ0YmVhdFJlcXVlc3RIABJEChJ0b29sX2NhbGxfcmVzcG9uc2UYAyABKAsyJi5hZ2VudGQudjEuUnVuUmVxdWVzdC5Ub29sQ2FsbFJlc3BvbnNlSAASLwoDZW5kGAQgASgLMiAuYWdlbnRkLnYxLlJ1blJlcXVlc3QuRW5kUmVxdWVzdEgAEjUKBmNhbmNlbBgFIAEoCzIjLmFnZW50ZC52MS5SdW5SZXF1ZXN0LkNhbmNlbFJlcXVlc3RIABI+ChRpbnRlcmFjdGlvbl9yZXNwb25zZRgUIAEoCzIeLmFnZW50ZC52MS5JbnRlcmFjdGlvblJlc3BvbnNlSAASKgoGYXR0YWNoGBYgASgLMhguYWdlbnRkLnYxLkF0dGFjaFJlcXVlc3RIABqjBQoORXhlY3V0ZVJlcXVlc3QSHwoFYWdlbnQYASABKAsyEC5hZ2VudGQudjEuQWdlbnQSFwoKc2Vzc2lvbl9pZBgCIAEoCUgAiAEBEhMKC3VzZXJfcHJvbXB0GAMgASgJEh4KBXRvb2xzGAQgAygLMg8uYWdlbnRkLnYxLlRvb2wSLgoNaW5pdGlhbF9zdGF0ZRgFIAEoCzIXLmdvb2dsZS5wcm90b2J1Zi5TdHJ1Y3QSLgoNb25fZGlzY29ubmVjdBgLIAEoDjIXLmFnZW50ZC52MS5PbkRpc2Nvbm5lY3QSMwoQZGlzY29ubmVjdF9ncmFjZRgMIAEoCzIZLmdvb2dsZS5wcm90b2J1Zi5EdXJhdGlvbhIhCgZidWRnZXQYDSABKAsyES5hZ2VudGQudjEuQnVkZ2V0EikKDnNlc3Npb25fYnVkZ2V0GA4gASgLMhEuYWdlbnRkLnYxLkJ1ZGdldBIiCgdvbl9idXN5GA8gASgOMhEuYWdlbnRkLnYxLk9uQnVzeRIvCgx0b29sX3RpbWVvdXQYECABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb24SDwoHdHVybl9pZBgRIAEoCRIXCg9pZGVtcG90ZW5jeV9rZXkYEiABKAkSEwoLaW5zdHJ1Y3Rpb24YEyABKAkSIwoKdXNlcl9wYXJ0cxgUIAMoCzIPLmFnZW50ZC52MS5QYXJ0EhQKDHJhd19wYXlsb2FkcxgVIAEoCBIOCgZjcmVhdGUYHiABKAgSGgoSaW5pdGlhbF9zdGF0ZV9qc29uGCEgASgJQg0KC19zZXNzaW9uX2lkSgQIChALSgQIIBAhSgQIFhAeSgQIHxAgUglhZnRlcl9zZXFSB29ic2VydmVSCWFnZW50X3JlZhomChBIZWFydGJlYXRSZXF1ZXN0EhIKCnNlc3Npb25faWQYASABKAka5AEKEFRvb2xDYWxsUmVzcG9uc2USEgoKc2Vzc2lvbl9pZBgBIAEoCRIUCgx0b29sX2NhbGxfaWQYAiABKAkSEQoJdG9vbF9uYW1lGAMgASgJEhAKBm91dHB1dBgEIAEoCUgAEg8KBWVycm9yGAUgASgJSAASLAoLc3RhdGVfZGVsdGEYBiABKAsyFy5nb29nbGUucHJvdG9idWYuU3RydWN0Eh4KBXBhcnRzGAogAygLMg8uYWdlbnRkLnYxLlBhcnQSGAoQc3RhdGVfZGVsdGFfanNvbhgLIAEoCUIICgZyZXN1bHQaQAoKRW5kUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEhMKBnJlYXNvbhgCIAEoCUgAiAEBQgkKB19yZWFzb24aTwoNQ2FuY2VsUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEhkKDHRvb2xfY2FsbF9pZBgCIAEoCUgAiAEBQg8KDV90b29sX2NhbGxfaWRCCQoHcmVxdWVzdEoECBUQFlITaW50ZXJhY3Rpb25fcmVxdWVzdCLDAQoNQXR0YWNoUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEg8KB3R1cm5faWQYAiABKAkSFgoJYWZ0ZXJfc2VxGAMgASgDSACIAQESEgoKdG9vbF9uYW1lcxgEIAMoCRIPCgdvYnNlcnZlGAUgASgIEg8KB2Rpc3BsYXkYBiABKAgSMQoKdmlzaWJpbGl0eRgHIAEoDjIdLmFnZW50ZC52MS5EaXNwbGF5LlZpc2liaWxpdHlCDAoKX2FmdGVyX3NlcSKMFQoLUnVuUmVzcG9uc2USOQoHZXhlY3V0ZRgBIAEoCzImLmFnZW50ZC52MS5SdW5SZXNwb25zZS5FeGVjdXRlUmVzcG9uc2VIABI9CgloZWFydGJlYXQYAiABKAsyKC5hZ2VudGQudjEuUnVuUmVzcG9uc2UuSGVhcnRiZWF0UmVzcG9uc2VIABI7Cgl0b29sX2NhbGwYAyABKAsyJi5hZ2VudGQudjEuUnVuUmVzcG9uc2UuVG9vbENhbGxSZXF1ZXN0SAASNQoFZXJyb3IYBCABKAsyJC5hZ2VudGQudjEuUnVuUmVzcG9uc2UuRXJyb3JSZXNwb25zZUgAEjEKA2VuZBgFIAEoCzIiLmFnZW50ZC52MS5SdW5SZXNwb25zZS5FbmRSZXNwb25zZUgAEjoKDG91dHB1dF9jaHVuaxgGIAEoCzIiLmFnZW50ZC52MS5SdW5SZXNwb25zZS5PdXRwdXRDaHVua0gAEjoKDHN0YXRlX3VwZGF0ZRgHIAEoCzIiLmFnZW50ZC52MS5SdW5SZXNwb25zZS5TdGF0ZVVwZGF0ZUgAEjkKEnRvb2xfY2FsbF9jYW5jZWxlZBgUIAEoCzIbLmFnZW50ZC52MS5Ub29sQ2FsbENhbmNlbGVkSAASOwoTdG9vbF9jYWxsX2Fubm91bmNlZBgVIAEoCzIcLmFnZW50ZC52MS5Ub29sQ2FsbEFubm91bmNlZEgAEjgKEW1lc3NhZ2VfcmV0cmFjdGVkGBYgASgLMhsuYWdlbnRkLnYxLk1lc3NhZ2VSZXRyYWN0ZWRIABIsCgt0dXJuX3F1ZXVlZBgXIAEoCzIVLmFnZW50ZC52MS5UdXJuUXVldWVkSAASNgoQbWVzc2FnZV9pbmplY3RlZBgYIAEoCzIaLmFnZW50ZC52MS5NZXNzYWdlSW5qZWN0ZWRIABI5ChJtb2RlbF9jYWxsX3JldHJpZWQYGSABKAsyGy5hZ2VudGQudjEuTW9kZWxDYWxsUmV0cmllZEgAEjkKEnRvb2xfY2FsbF9hbnN3ZXJlZBgaIAEoCzIbLmFnZW50ZC52MS5Ub29sQ2FsbEFuc3dlcmVkSAASQAoVaW50ZXJhY3Rpb25fcmVxdWVzdGVkGBsgASgLMh8uYWdlbnRkLnYxLkludGVyYWN0aW9uUmVxdWVzdGVkSAASPgoUaW50ZXJhY3Rpb25fcmVzb2x2ZWQYHCABKAsyHi5hZ2VudGQudjEuSW50ZXJhY3Rpb25SZXNvbHZlZEgAEjUKEG1vZGVsX2NhbGxfZW5kZWQYHSABKAsyGS5hZ2VudGQudjEuTW9kZWxDYWxsRW5kZWRIABI8ChRtb2RlbF9jYWxsX2ZlbGxfYmFjaxgeIAEoCzIcLmFnZW50ZC52MS5Nb2RlbENhbGxGZWxsQmFja0gAEjsKE3Byb3ZpZGVyX3Rvb2xzX3VzZWQYHyABKAsyHC5hZ2VudGQudjEuUHJvdmlkZXJUb29sc1VzZWRIABI9ChRyYXdfcGF5bG9hZF9yZWNlaXZlZBggIAEoCzIdLmFnZW50ZC52MS5SYXdQYXlsb2FkUmVjZWl2ZWRIABI4ChFoaXN0b3J5X2NvbXBhY3RlZBghIAEoCzIbLmFnZW50ZC52MS5IaXN0b3J5Q29tcGFjdGVkSAASOQoSdG9vbF9jYWxsX3Vuc2VydmVkGCMgASgLMhsuYWdlbnRkLnYxLlRvb2xDYWxsVW5zZXJ2ZWRIABI4ChFtZXNzYWdlX2NvbXBsZXRlZBgkIAEoCzIbLmFnZW50ZC52MS5NZXNzYWdlQ29tcGxldGVkSAASMAoNYWdlbnRfc3RhcnRlZBglIAEoCzIXLmFnZW50ZC52MS5BZ2VudFN0YXJ0ZWRIABIsCgthZ2VudF9lbmRlZBgmIAEoCzIVLmFnZW50ZC52MS5BZ2VudEVuZGVkSAASLQoLdHJhbnNmZXJyZWQYJyABKAsyFi5hZ2VudGQudjEuVHJhbnNmZXJyZWRIABILCgNzZXEYCiABKAMSDwoHdHVybl9pZBgLIAEoCRIoCgR0aW1lGAwgASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcBIQCghyZXBsYXllZBgNIAEoCBIjCgdkaXNwbGF5GA4gASgLMhIuYWdlbnRkLnYxLkRpc3BsYXkaSwoPRXhlY3V0ZVJlc3BvbnNlEhIKCnNlc3Npb25faWQYASABKAkSJAoId2FybmluZ3MYCiADKAsyEi5hZ2VudGQudjEuV2FybmluZxonChFIZWFydGJlYXRSZXNwb25zZRISCgpzZXNzaW9uX2lkGAEgASgJGp8BCg9Ub29sQ2FsbFJlcXVlc3QSEgoKc2Vzc2lvbl9pZBgBIAEoCRIUCgx0b29sX2NhbGxfaWQYAiABKAkSEQoJdG9vbF9uYW1lGAMgASgJEhIKCnRvb2xfaW5wdXQYBCABKAkSEgoKYWdlbnRfcGF0aBgFIAMoCRITCgt0cmFjZXBhcmVudBgKIAEoCRISCgp0cmFjZXN0YXRlGAsgASgJGnwKC091dHB1dENodW5rEhIKCnNlc3Npb25faWQYASABKAkSEgoKYWdlbnRfcGF0aBgCIAMoCRIPCgdjb250ZW50GAMgASgJEgwKBGxhc3QYBCABKAgSEgoKaXNfdGhvdWdodBgFIAEoCBISCgptZXNzYWdlX2lkGAogASgJGpoCCg1FcnJvclJlc3BvbnNlEhIKCnNlc3Npb25faWQYASABKAkSIgoEY29kZRgCIAEoDjIULmFnZW50ZC52MS5FcnJvckNvZGUSDwoHbWVzc2FnZRgDIAEoCRIRCglyZXRyeWFibGUYBCABKAgSFAoMdG9vbF9jYWxsX2lkGAogASgJEg8KB3R1cm5faWQYCyABKAkSLgoLcmV0cnlfYWZ0ZXIYDCABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb24SLQoKdmlvbGF0aW9ucxgNIAMoCzIZLmFnZW50ZC52MS5GaWVsZFZpb2xhdGlvbhInCgVsaW1pdBgOIAEoCzIYLmFnZW50ZC52MS5FeGNlZWRlZExpbWl0GsoBCgtFbmRSZXNwb25zZRISCgpzZXNzaW9uX2lkGAEgASgJEhMKBnJlYXNvbhgCIAEoCUgAiAEBEi4KDXVzYWdlX3N1bW1hcnkYAyABKAsyFy5hZ2VudGQudjEuVXNhZ2VTdW1tYXJ5EhEKCWNvbXBsZXRlZBgEIAEoCBIpCgdyZWNlaXB0GAogASgLMhguYWdlbnRkLnYxLkNhbmNlbFJlY2VpcHQSGQoRc3RydWN0dXJlZF9vdXRwdXQYCyABKAlCCQoHX3JlYXNvbhppCgtTdGF0ZVVwZGF0ZRISCgpzZXNzaW9uX2lkGAEgASgJEiwKC3N0YXRlX2RlbHRhGAIgASgLMhcuZ29vZ2xlLnByb3RvYnVmLlN0cnVjdBIYChBzdGF0ZV9kZWx0YV9qc29uGAogASgJQgoKCHJlc3BvbnNlSgQIDxAQSgQIIhAjSgQIKBApUgdsaW5lYWdlUgRnb2FsUg5yZW1vdGVfc2Vzc2lvbiJsChNJbnRlcmFjdGlvblJlc3BvbnNlEhIKCnNlc3Npb25faWQYASABKAkSFgoOaW50ZXJhY3Rpb25faWQYAiABKAkSKQoKcmVzb2x1dGlvbhgDIAEoCzIVLmFnZW50ZC52MS5SZXNvbHV0aW9uItwBCg1DYW5jZWxSZWNlaXB0EjgKE2Fib3J0ZWRfbW9kZWxfY2FsbHMYASADKAsyGy5hZ2VudGQudjEuQWJvcnRlZE1vZGVsQ2FsbBIzChNjYW5jZWxlZF90b29sX2NhbGxzGAIgAygLMhYuYWdlbnRkLnYxLlRvb2xDYWxsUmVmEjMKE2Fuc3dlcmVkX3Rvb2xfY2FsbHMYAyADKAsyFi5hZ2VudGQudjEuVG9vbENhbGxSZWYSJwoEdG9vaxgEIAEoCzIZLmdvb2dsZS5wcm90b2J1Zi5EdXJhdGlvbiJxChBBYm9ydGVkTW9kZWxDYWxsEhIKCmFnZW50X3BhdGgYASADKAkSDQoFbW9kZWwYAiABKAkSEgoKbWVzc2FnZV9pZBgDIAEoCRImCgNyYW4YBCABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb24iNgoLVG9vbENhbGxSZWYSFAoMdG9vbF9jYWxsX2lkGAEgASgJEhEKCXRvb2xfbmFtZRgCIAEoCSKNAQoKVHVyblF1ZXVlZBISCgpzZXNzaW9uX2lkGAEgASgJEhMKC3VzZXJfcHJvbXB0GAIgASgJEg0KBWFoZWFkGAMgASgNEg4KBmluamVjdBgEIAEoCBIjCgp1c2VyX3BhcnRzGAUgAygLMg8uYWdlbnRkLnYxLlBhcnQSEgoKY3JlYXRlZF9ieRgGIAEoCSKLAQoPTWVzc2FnZUluamVjdGVkEhIKCnNlc3Npb25faWQYASABKAkSEwoLdXNlcl9wcm9tcHQYAiABKAkSFgoOcXVldWVkX3R1cm5faWQYAyABKAkSIwoKdXNlcl9wYXJ0cxgEIAMoCzIPLmFnZW50ZC52MS5QYXJ0EhIKCmNyZWF0ZWRfYnkYBSABKAkivQEKEE1vZGVsQ2FsbFJldHJpZWQSEgoKc2Vzc2lvbl9pZBgBIAEoCRISCgphZ2VudF9wYXRoGAIgAygJEhIKCm1lc3NhZ2VfaWQYAyABKAkSDwoHYXR0ZW1wdBgEIAEoDRInCgR3YWl0GAUgASgLMhkuZ29vZ2xlLnByb3RvYnVmLkR1cmF0aW9uEiIKBGNvZGUYBiABKA4yFC5hZ2VudGQudjEuRXJyb3JDb2RlEg8KB21lc3NhZ2UYByABKAkipwEKEU1vZGVsQ2FsbEZlbGxCYWNrEhIKCnNlc3Npb25faWQYASABKAkSEgoKYWdlbnRfcGF0aBgCIAMoCRISCgptZXNzYWdlX2lkGAMgASgJEg0KBW1vZGVsGAQgASgJEhIKCm5leHRfbW9kZWwYBSABKAkSIgoEY29kZRgGIAEoDjIULmFnZW50ZC52MS5FcnJvckNvZGUSDwoHbWVzc2FnZRgHIAEoCSLvAwoOTW9kZWxDYWxsRW5kZWQSEgoKc2Vzc2lvbl9pZBgBIAEoCRISCgphZ2VudF9wYXRoGAIgAygJEhIKCm1lc3NhZ2VfaWQYAyABKAkSDQoFbW9kZWwYBCABKAkSFAoMc2VydmVkX21vZGVsGAUgASgJEhAKCHByb3ZpZGVyGAYgASgJEh8KBXVzYWdlGAcgASgLMhAuYWdlbnRkLnYxLlVzYWdlEioKC3N0b3BfcmVhc29uGAogASgOMhUuYWdlbnRkLnYxLlN0b3BSZWFzb24SKwoIZHVyYXRpb24YCyABKAsyGS5nb29nbGUucHJvdG9idWYuRHVyYXRpb24SNQoSdGltZV90b19maXJzdF90ZXh0GAwgASgLMhkuZ29vZ2xlLnByb3RvYnVmLkR1cmF0aW9uEjIKB291dGNvbWUYDSABKA4yIS5hZ2VudGQudjEuTW9kZWxDYWxsRW5kZWQuT3V0Y29tZSJkCgdPdXRjb21lEhcKE09VVENPTUVfVU5TUEVDSUZJRUQQABIUChBPVVRDT01FX0FOU1dFUkVEEAESFgoST1VUQ09NRV9TVU1NQVJJWkVEEAISEgoOT1VUQ09NRV9GQUlMRUQQA0oECAgQCUoECAkQClIJbGxtX2NhbGxzUghjb3N0X3VzZCKhAQoRUHJvdmlkZXJUb29sc1VzZWQSEgoKc2Vzc2lvbl9pZBgBIAEoCRISCgphZ2VudF9wYXRoGAIgAygJEhIKCm1lc3NhZ2VfaWQYAyABKAkSKAoEdXNlcxgEIAMoCzIaLmFnZW50ZC52MS5Qcm92aWRlclRvb2xVc2USJgoJY2l0YXRpb25zGAUgAygLMhMuYWdlbnRkLnYxLkNpdGF0aW9uIl4KD1Byb3ZpZGVyVG9vbFVzZRIKCgJpZBgBIAEoCRIRCgl0b29sX25hbWUYAiABKAkSDQoFaW5wdXQYAyABKAkSDgoGb3V0cHV0GAQgASgJEg0KBWVycm9yGAUgASgJImAKCENpdGF0aW9uEgsKA3VyaRgBIAEoCRINCgV0aXRsZRgCIAEoCRISCgpjaXRlZF90ZXh0GAMgASgJEhIKCnN0YXJ0X2J5dGUYBCABKAUSEAoIZW5kX2J5dGUYBSABKAUiugEKElJhd1BheWxvYWRSZWNlaXZlZBISCgpzZXNzaW9uX2lkGAEgASgJEhIKCmFnZW50X3BhdGgYAiADKAkSEgoKbWVzc2FnZV9pZBgDIAEoCRIPCgdhdHRlbXB0GAQgASgNEhAKCHByb3ZpZGVyGAUgASgJEg4KBnN0YXR1cxgGIAEoBRIUCgxjb250ZW50X3R5cGUYByABKAkSDAoEYm9keRgIIAEoDBIRCgl0cnVuY2F0ZWQYCSABKAgijAIKEEhpc3RvcnlDb21wYWN0ZWQSEgoKc2Vzc2lvbl9pZBgBIAEoCRISCgphZ2VudF9wYXRoGAIgAygJEg8KB3N1bW1hcnkYAyABKAkSEwoLdGhyb3VnaF9zZXEYBCABKAMSMgoGcmVhc29uGAUgASgOMiIuYWdlbnRkLnYxLkhpc3RvcnlDb21wYWN0ZWQuUmVhc29uEhUKDXByb21wdF90b2tlbnMYBiABKAMSFgoOY29udGV4dF90b2tlbnMYByABKAMiRwoGUmVhc29uEhYKElJFQVNPTl9VTlNQRUNJRklFRBAAEhAKDFJFQVNPTl9TSEFSRRABEhMKD1JFQVNPTl9PVkVSRkxPVxACIkwKEFRvb2xDYWxsQ2FuY2VsZWQSEgoKc2Vzc2lvbl9pZBgBIAEoCRIUCgx0b29sX2NhbGxfaWQYAiABKAkSDgoGcmVhc29uGAMgASgJIngKEVRvb2xDYWxsQW5ub3VuY2VkEhIKCnNlc3Npb25faWQYASABKAkSFAoMdG9vbF9jYWxsX2lkGAIgASgJEhEKCXRvb2xfbmFtZRgDIAEoCRISCgp0b29sX2lucHV0GAQgASgJEhIKCmFnZW50X3BhdGgYBSADKAkiTgoQTWVzc2FnZVJldHJhY3RlZBISCgpzZXNzaW9uX2lkGAEgASgJEhIKCm1lc3NhZ2VfaWQYAiABKAkSEgoKYWdlbnRfcGF0aBgDIAMoCSLqAQoQVG9vbENhbGxBbnN3ZXJlZBISCgpzZXNzaW9uX2lkGAEgASgJEhQKDHRvb2xfY2FsbF9pZBgCIAEoCRIRCgl0b29sX25hbWUYAyABKAkSEAoGb3V0cHV0GAQgASgJSAASDwoFZXJyb3IYBSABKAlIABISCgphZ2VudF9wYXRoGAYgAygJEh4KBXBhcnRzGAcgAygLMg8uYWdlbnRkLnYxLlBhcnQSEgoKY3JlYXRlZF9ieRgIIAEoCRIkCgh3YXJuaW5ncxgJIAMoCzISLmFnZW50ZC52MS5XYXJuaW5nQggKBnJlc3VsdCJDChRJbnRlcmFjdGlvblJlcXVlc3RlZBIrCgtpbnRlcmFjdGlvbhgBIAEoCzIWLmFnZW50ZC52MS5JbnRlcmFjdGlvbiJCChNJbnRlcmFjdGlvblJlc29sdmVkEisKC2ludGVyYWN0aW9uGAEgASgLMhYuYWdlbnRkLnYxLkludGVyYWN0aW9uIpQBChBUb29sQ2FsbFVuc2VydmVkEhIKCnNlc3Npb25faWQYASABKAkSFAoMdG9vbF9jYWxsX2lkGAIgASgJEhEKCXRvb2xfbmFtZRgDIAEoCRISCgphZ2VudF9wYXRoGAQgAygJEi8KC2V4cGlyZV90aW1lGAUgASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcCJ5ChBNZXNzYWdlQ29tcGxldGVkEhIKCnNlc3Npb25faWQYASABKAkSEgoKYWdlbnRfcGF0aBgCIAMoCRISCgptZXNzYWdlX2lkGAMgASgJEhIKCnRleHRfYnl0ZXMYBCABKAMSFQoNdGhvdWdodF9ieXRlcxgFIAEoAyJMCgtUcmFuc2ZlcnJlZBISCgpzZXNzaW9uX2lkGAEgASgJEhIKCmFnZW50X3BhdGgYAiADKAkSFQoNdG9fYWdlbnRfcGF0aBgDIAMoCSJpCgxBZ2VudFN0YXJ0ZWQSEgoKc2Vzc2lvbl9pZBgBIAEoCRISCgphZ2VudF9wYXRoGAIgAygJEiIKBGtpbmQYAyABKA4yFC5hZ2VudGQudjEuQWdlbnRLaW5kEg0KBW1vZGVsGAQgASgJIuIBCgpBZ2VudEVuZGVkEhIKCnNlc3Npb25faWQYASABKAkSEgoKYWdlbnRfcGF0aBgCIAMoCRIuCgdvdXRjb21lGAMgASgOMh0uYWdlbnRkLnYxLkFnZW50RW5kZWQuT3V0Y29tZSJ8CgdPdXRjb21lEhcKE09VVENPTUVfVU5TUEVDSUZJRUQQABIVChFPVVRDT01FX0NPTVBMRVRFRBABEhcKE09VVENPTUVfVFJBTlNGRVJSRUQQAhISCg5PVVRDT01FX0ZBSUxFRBADEhQKEE9VVENPTUVfQ0FOQ0VMRUQQBCK3BAoHRGlzcGxheRIlCgRraW5kGAEgASgOMhcuYWdlbnRkLnYxLkRpc3BsYXkuS2luZBInCgVwaGFzZRgCIAEoDjIYLmFnZW50ZC52MS5EaXNwbGF5LlBoYXNlEgsKA3JlZhgDIAEoCRIxCgp2aXNpYmlsaXR5GAQgASgOMh0uYWdlbnRkLnYxLkRpc3BsYXkuVmlzaWJpbGl0eSKFAQoES2luZBIUChBLSU5EX1VOU1BFQ0lGSUVEEAASDQoJS0lORF9URVhUEAESEgoOS0lORF9SRUFTT05JTkcQAhINCglLSU5EX1RPT0wQAxIUChBLSU5EX0lOVEVSQUNUSU9OEAQSDwoLS0lORF9TVEFUVVMQBRIOCgpLSU5EX0VSUk9SEAYiugEKBVBoYXNlEhUKEVBIQVNFX1VOU1BFQ0lGSUVEEAASDwoLUEhBU0VfREVMVEEQARITCg9QSEFTRV9DT01QTEVURUQQAhIRCg1QSEFTRV9TVEFSVEVEEAMSEgoOUEhBU0VfUFJPR1JFU1MQBBIQCgxQSEFTRV9GQUlMRUQQBRITCg9QSEFTRV9SRVFVRVNURUQQBhISCg5QSEFTRV9SRVNPTFZFRBAHEhIKDlBIQVNFX0NBTkNFTEVEEAgiVwoKVmlzaWJpbGl0eRIaChZWSVNJQklMSVRZX1VOU1BFQ0lGSUVEEAASFQoRVklTSUJJTElUWV9QVUJMSUMQARIWChJWSVNJQklMSVRZX1BSSVZBVEUQAjJCCgZBZ2VudGQSOAoDUnVuEhUuYWdlbnRkLnYxLlJ1blJlcXVlc3QaFi5hZ2VudGQudjEuUnVuUmVzcG9uc2UoATABQjpaOGdpdGh1Yi5jb20vYXB6dWszL2FnZW50ZC9nZW4vcHJvdG8vZ28vYWdlbnRkL3YxO2FnZW50ZHYxYgZwcm90bzM", [file_agentd_v1_interactions, file_agentd_v1_types, file_google_protobuf_duration, file_google_protobuf_struct, file_google_protobuf_timestamp]);
/**
 * Describes the message agentd.v1.RunRequest.
 * Use `create(RunRequestSchema)` to create a new message.
 */
export const RunRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 0);
/**
 * Describes the message agentd.v1.RunRequest.ExecuteRequest.
 * Use `create(RunRequest_ExecuteRequestSchema)` to create a new message.
 */
export const RunRequest_ExecuteRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 0, 0);
/**
 * Describes the message agentd.v1.RunRequest.HeartbeatRequest.
 * Use `create(RunRequest_HeartbeatRequestSchema)` to create a new message.
 */
export const RunRequest_HeartbeatRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 0, 1);
/**
 * Describes the message agentd.v1.RunRequest.ToolCallResponse.
 * Use `create(RunRequest_ToolCallResponseSchema)` to create a new message.
 */
export const RunRequest_ToolCallResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 0, 2);
/**
 * Describes the message agentd.v1.RunRequest.EndRequest.
 * Use `create(RunRequest_EndRequestSchema)` to create a new message.
 */
export const RunRequest_EndRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 0, 3);
/**
 * Describes the message agentd.v1.RunRequest.CancelRequest.
 * Use `create(RunRequest_CancelRequestSchema)` to create a new message.
 */
export const RunRequest_CancelRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 0, 4);
/**
 * Describes the message agentd.v1.AttachRequest.
 * Use `create(AttachRequestSchema)` to create a new message.
 */
export const AttachRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 1);
/**
 * Describes the message agentd.v1.RunResponse.
 * Use `create(RunResponseSchema)` to create a new message.
 */
export const RunResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 2);
/**
 * Describes the message agentd.v1.RunResponse.ExecuteResponse.
 * Use `create(RunResponse_ExecuteResponseSchema)` to create a new message.
 */
export const RunResponse_ExecuteResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 2, 0);
/**
 * Describes the message agentd.v1.RunResponse.HeartbeatResponse.
 * Use `create(RunResponse_HeartbeatResponseSchema)` to create a new message.
 */
export const RunResponse_HeartbeatResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 2, 1);
/**
 * Describes the message agentd.v1.RunResponse.ToolCallRequest.
 * Use `create(RunResponse_ToolCallRequestSchema)` to create a new message.
 */
export const RunResponse_ToolCallRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 2, 2);
/**
 * Describes the message agentd.v1.RunResponse.OutputChunk.
 * Use `create(RunResponse_OutputChunkSchema)` to create a new message.
 */
export const RunResponse_OutputChunkSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 2, 3);
/**
 * Describes the message agentd.v1.RunResponse.ErrorResponse.
 * Use `create(RunResponse_ErrorResponseSchema)` to create a new message.
 */
export const RunResponse_ErrorResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 2, 4);
/**
 * Describes the message agentd.v1.RunResponse.EndResponse.
 * Use `create(RunResponse_EndResponseSchema)` to create a new message.
 */
export const RunResponse_EndResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 2, 5);
/**
 * Describes the message agentd.v1.RunResponse.StateUpdate.
 * Use `create(RunResponse_StateUpdateSchema)` to create a new message.
 */
export const RunResponse_StateUpdateSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 2, 6);
/**
 * Describes the message agentd.v1.InteractionResponse.
 * Use `create(InteractionResponseSchema)` to create a new message.
 */
export const InteractionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 3);
/**
 * Describes the message agentd.v1.CancelReceipt.
 * Use `create(CancelReceiptSchema)` to create a new message.
 */
export const CancelReceiptSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 4);
/**
 * Describes the message agentd.v1.AbortedModelCall.
 * Use `create(AbortedModelCallSchema)` to create a new message.
 */
export const AbortedModelCallSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 5);
/**
 * Describes the message agentd.v1.ToolCallRef.
 * Use `create(ToolCallRefSchema)` to create a new message.
 */
export const ToolCallRefSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 6);
/**
 * Describes the message agentd.v1.TurnQueued.
 * Use `create(TurnQueuedSchema)` to create a new message.
 */
export const TurnQueuedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 7);
/**
 * Describes the message agentd.v1.MessageInjected.
 * Use `create(MessageInjectedSchema)` to create a new message.
 */
export const MessageInjectedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 8);
/**
 * Describes the message agentd.v1.ModelCallRetried.
 * Use `create(ModelCallRetriedSchema)` to create a new message.
 */
export const ModelCallRetriedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 9);
/**
 * Describes the message agentd.v1.ModelCallFellBack.
 * Use `create(ModelCallFellBackSchema)` to create a new message.
 */
export const ModelCallFellBackSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 10);
/**
 * Describes the message agentd.v1.ModelCallEnded.
 * Use `create(ModelCallEndedSchema)` to create a new message.
 */
export const ModelCallEndedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 11);
/**
 * Outcome is how a call ended.
 *
 * @generated from enum agentd.v1.ModelCallEnded.Outcome
 */
export var ModelCallEnded_Outcome;
(function (ModelCallEnded_Outcome) {
    /**
     * Not known: the call was made by a server that did not send it yet.
     *
     * @generated from enum value: OUTCOME_UNSPECIFIED = 0;
     */
    ModelCallEnded_Outcome[ModelCallEnded_Outcome["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * It has written message_id.
     *
     * @generated from enum value: OUTCOME_ANSWERED = 1;
     */
    ModelCallEnded_Outcome[ModelCallEnded_Outcome["ANSWERED"] = 1] = "ANSWERED";
    /**
     * It has written a summary, see HistoryCompacted.
     *
     * @generated from enum value: OUTCOME_SUMMARIZED = 2;
     */
    ModelCallEnded_Outcome[ModelCallEnded_Outcome["SUMMARIZED"] = 2] = "SUMMARIZED";
    /**
     * It failed or was aborted. It is sent because it was paid for.
     *
     * @generated from enum value: OUTCOME_FAILED = 3;
     */
    ModelCallEnded_Outcome[ModelCallEnded_Outcome["FAILED"] = 3] = "FAILED";
})(ModelCallEnded_Outcome || (ModelCallEnded_Outcome = {}));
/**
 * Describes the enum agentd.v1.ModelCallEnded.Outcome.
 */
export const ModelCallEnded_OutcomeSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_service, 11, 0);
/**
 * Describes the message agentd.v1.ProviderToolsUsed.
 * Use `create(ProviderToolsUsedSchema)` to create a new message.
 */
export const ProviderToolsUsedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 12);
/**
 * Describes the message agentd.v1.ProviderToolUse.
 * Use `create(ProviderToolUseSchema)` to create a new message.
 */
export const ProviderToolUseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 13);
/**
 * Describes the message agentd.v1.Citation.
 * Use `create(CitationSchema)` to create a new message.
 */
export const CitationSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 14);
/**
 * Describes the message agentd.v1.RawPayloadReceived.
 * Use `create(RawPayloadReceivedSchema)` to create a new message.
 */
export const RawPayloadReceivedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 15);
/**
 * Describes the message agentd.v1.HistoryCompacted.
 * Use `create(HistoryCompactedSchema)` to create a new message.
 */
export const HistoryCompactedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 16);
/**
 * Reason is why.
 *
 * @generated from enum agentd.v1.HistoryCompacted.Reason
 */
export var HistoryCompacted_Reason;
(function (HistoryCompacted_Reason) {
    /**
     * Never sent.
     *
     * @generated from enum value: REASON_UNSPECIFIED = 0;
     */
    HistoryCompacted_Reason[HistoryCompacted_Reason["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * The prompt reached the share of the context that was set.
     *
     * @generated from enum value: REASON_SHARE = 1;
     */
    HistoryCompacted_Reason[HistoryCompacted_Reason["SHARE"] = 1] = "SHARE";
    /**
     * The provider refused the prompt as too long.
     *
     * @generated from enum value: REASON_OVERFLOW = 2;
     */
    HistoryCompacted_Reason[HistoryCompacted_Reason["OVERFLOW"] = 2] = "OVERFLOW";
})(HistoryCompacted_Reason || (HistoryCompacted_Reason = {}));
/**
 * Describes the enum agentd.v1.HistoryCompacted.Reason.
 */
export const HistoryCompacted_ReasonSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_service, 16, 0);
/**
 * Describes the message agentd.v1.ToolCallCanceled.
 * Use `create(ToolCallCanceledSchema)` to create a new message.
 */
export const ToolCallCanceledSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 17);
/**
 * Describes the message agentd.v1.ToolCallAnnounced.
 * Use `create(ToolCallAnnouncedSchema)` to create a new message.
 */
export const ToolCallAnnouncedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 18);
/**
 * Describes the message agentd.v1.MessageRetracted.
 * Use `create(MessageRetractedSchema)` to create a new message.
 */
export const MessageRetractedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 19);
/**
 * Describes the message agentd.v1.ToolCallAnswered.
 * Use `create(ToolCallAnsweredSchema)` to create a new message.
 */
export const ToolCallAnsweredSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 20);
/**
 * Describes the message agentd.v1.InteractionRequested.
 * Use `create(InteractionRequestedSchema)` to create a new message.
 */
export const InteractionRequestedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 21);
/**
 * Describes the message agentd.v1.InteractionResolved.
 * Use `create(InteractionResolvedSchema)` to create a new message.
 */
export const InteractionResolvedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 22);
/**
 * Describes the message agentd.v1.ToolCallUnserved.
 * Use `create(ToolCallUnservedSchema)` to create a new message.
 */
export const ToolCallUnservedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 23);
/**
 * Describes the message agentd.v1.MessageCompleted.
 * Use `create(MessageCompletedSchema)` to create a new message.
 */
export const MessageCompletedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 24);
/**
 * Describes the message agentd.v1.Transferred.
 * Use `create(TransferredSchema)` to create a new message.
 */
export const TransferredSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 25);
/**
 * Describes the message agentd.v1.AgentStarted.
 * Use `create(AgentStartedSchema)` to create a new message.
 */
export const AgentStartedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 26);
/**
 * Describes the message agentd.v1.AgentEnded.
 * Use `create(AgentEndedSchema)` to create a new message.
 */
export const AgentEndedSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 27);
/**
 * Outcome is how.
 *
 * @generated from enum agentd.v1.AgentEnded.Outcome
 */
export var AgentEnded_Outcome;
(function (AgentEnded_Outcome) {
    /**
     * Never sent.
     *
     * @generated from enum value: OUTCOME_UNSPECIFIED = 0;
     */
    AgentEnded_Outcome[AgentEnded_Outcome["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * It was done.
     *
     * @generated from enum value: OUTCOME_COMPLETED = 1;
     */
    AgentEnded_Outcome[AgentEnded_Outcome["COMPLETED"] = 1] = "COMPLETED";
    /**
     * It has handed the conversation over: Transferred, which comes first, says to which
     * agent.
     *
     * @generated from enum value: OUTCOME_TRANSFERRED = 2;
     */
    AgentEnded_Outcome[AgentEnded_Outcome["TRANSFERRED"] = 2] = "TRANSFERRED";
    /**
     * The turn has failed.
     *
     * @generated from enum value: OUTCOME_FAILED = 3;
     */
    AgentEnded_Outcome[AgentEnded_Outcome["FAILED"] = 3] = "FAILED";
    /**
     * The turn was canceled.
     *
     * @generated from enum value: OUTCOME_CANCELED = 4;
     */
    AgentEnded_Outcome[AgentEnded_Outcome["CANCELED"] = 4] = "CANCELED";
})(AgentEnded_Outcome || (AgentEnded_Outcome = {}));
/**
 * Describes the enum agentd.v1.AgentEnded.Outcome.
 */
export const AgentEnded_OutcomeSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_service, 27, 0);
/**
 * Describes the message agentd.v1.Display.
 * Use `create(DisplaySchema)` to create a new message.
 */
export const DisplaySchema = /*@__PURE__*/ messageDesc(file_agentd_v1_service, 28);
/**
 * Kind is what an event is about.
 *
 * @generated from enum agentd.v1.Display.Kind
 */
export var Display_Kind;
(function (Display_Kind) {
    /**
     * Never sent.
     *
     * @generated from enum value: KIND_UNSPECIFIED = 0;
     */
    Display_Kind[Display_Kind["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * What an agent, or the user, says.
     *
     * @generated from enum value: KIND_TEXT = 1;
     */
    Display_Kind[Display_Kind["TEXT"] = 1] = "TEXT";
    /**
     * What a model thinks.
     *
     * @generated from enum value: KIND_REASONING = 2;
     */
    Display_Kind[Display_Kind["REASONING"] = 2] = "REASONING";
    /**
     * A tool call.
     *
     * @generated from enum value: KIND_TOOL = 3;
     */
    Display_Kind[Display_Kind["TOOL"] = 3] = "TOOL";
    /**
     * A question to a person.
     *
     * @generated from enum value: KIND_INTERACTION = 4;
     */
    Display_Kind[Display_Kind["INTERACTION"] = 4] = "INTERACTION";
    /**
     * The turn itself.
     *
     * @generated from enum value: KIND_STATUS = 5;
     */
    Display_Kind[Display_Kind["STATUS"] = 5] = "STATUS";
    /**
     * Something went wrong.
     *
     * @generated from enum value: KIND_ERROR = 6;
     */
    Display_Kind[Display_Kind["ERROR"] = 6] = "ERROR";
})(Display_Kind || (Display_Kind = {}));
/**
 * Describes the enum agentd.v1.Display.Kind.
 */
export const Display_KindSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_service, 28, 0);
/**
 * Phase is what has become of it.
 *
 * @generated from enum agentd.v1.Display.Phase
 */
export var Display_Phase;
(function (Display_Phase) {
    /**
     * Never sent.
     *
     * @generated from enum value: PHASE_UNSPECIFIED = 0;
     */
    Display_Phase[Display_Phase["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * A piece of it; it is added to what came before under the same ref.
     *
     * @generated from enum value: PHASE_DELTA = 1;
     */
    Display_Phase[Display_Phase["DELTA"] = 1] = "DELTA";
    /**
     * It is over, as it should.
     *
     * @generated from enum value: PHASE_COMPLETED = 2;
     */
    Display_Phase[Display_Phase["COMPLETED"] = 2] = "COMPLETED";
    /**
     * It has begun.
     *
     * @generated from enum value: PHASE_STARTED = 3;
     */
    Display_Phase[Display_Phase["STARTED"] = 3] = "STARTED";
    /**
     * It continues.
     *
     * @generated from enum value: PHASE_PROGRESS = 4;
     */
    Display_Phase[Display_Phase["PROGRESS"] = 4] = "PROGRESS";
    /**
     * It has failed.
     *
     * @generated from enum value: PHASE_FAILED = 5;
     */
    Display_Phase[Display_Phase["FAILED"] = 5] = "FAILED";
    /**
     * A person is asked.
     *
     * @generated from enum value: PHASE_REQUESTED = 6;
     */
    Display_Phase[Display_Phase["REQUESTED"] = 6] = "REQUESTED";
    /**
     * A person answered.
     *
     * @generated from enum value: PHASE_RESOLVED = 7;
     */
    Display_Phase[Display_Phase["RESOLVED"] = 7] = "RESOLVED";
    /**
     * Somebody stopped it.
     *
     * @generated from enum value: PHASE_CANCELED = 8;
     */
    Display_Phase[Display_Phase["CANCELED"] = 8] = "CANCELED";
})(Display_Phase || (Display_Phase = {}));
/**
 * Describes the enum agentd.v1.Display.Phase.
 */
export const Display_PhaseSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_service, 28, 1);
/**
 * Visibility is for whom it is.
 *
 * @generated from enum agentd.v1.Display.Visibility
 */
export var Display_Visibility;
(function (Display_Visibility) {
    /**
     * As a filter: all. Never sent.
     *
     * @generated from enum value: VISIBILITY_UNSPECIFIED = 0;
     */
    Display_Visibility[Display_Visibility["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * For the users of the agent.
     *
     * @generated from enum value: VISIBILITY_PUBLIC = 1;
     */
    Display_Visibility[Display_Visibility["PUBLIC"] = 1] = "PUBLIC";
    /**
     * For those who build or operate it: reasoning, tool arguments and results,
     * state, retries. A filter for the public lets notices and results of tools
     * through without arguments, outputs and error texts, and AgentStarted without the
     * model.
     *
     * @generated from enum value: VISIBILITY_PRIVATE = 2;
     */
    Display_Visibility[Display_Visibility["PRIVATE"] = 2] = "PRIVATE";
})(Display_Visibility || (Display_Visibility = {}));
/**
 * Describes the enum agentd.v1.Display.Visibility.
 */
export const Display_VisibilitySchema = /*@__PURE__*/ enumDesc(file_agentd_v1_service, 28, 2);
/**
 * Agentd runs agent trees. It is served for the Connect, gRPC and gRPC-Web
 * protocols, binary and JSON, over cleartext HTTP/2 and TLS, on one port.
 * buf:lint:ignore SERVICE_SUFFIX
 *
 * @generated from service agentd.v1.Agentd
 */
export const Agentd = /*@__PURE__*/ serviceDesc(file_agentd_v1_service, 0);
//# sourceMappingURL=service_pb.js.map