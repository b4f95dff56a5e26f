// The session engine without a bidirectional stream: for browsers, curl, and
// programs that start a turn now and look at it later.
import { enumDesc, fileDesc, messageDesc, serviceDesc } from "@bufbuild/protobuf/codegenv2";
import { file_agentd_v1_interactions } from "./interactions_pb.js";
import { file_agentd_v1_service } from "./service_pb.js";
import { file_agentd_v1_types } from "./types_pb.js";
import { file_google_protobuf_duration, file_google_protobuf_timestamp } from "@bufbuild/protobuf/wkt";
/**
 * Describes the file agentd/v1/sessions.proto.
 */
export const file_agentd_v1_sessions = /*@__PURE__*/ fileDesc("ChhhZ2VudGQvdjEvc2Vzc2lvbnMucHJvdG8SCWFnZW50ZC52MSKVBAoHU2Vzc2lvbhIKCgJpZBgBIAEoCRImCgVzdGF0ZRgCIAEoDjIXLmFnZW50ZC52MS5TZXNzaW9uU3RhdGUSLgoGbGFiZWxzGAMgAygLMh4uYWdlbnRkLnYxLlNlc3Npb24uTGFiZWxzRW50cnkSEgoKY2xpZW50X3JlZhgEIAEoCRISCgpjcmVhdGVkX2J5GAUgASgJEi8KC2NyZWF0ZV90aW1lGAYgASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcBIvCgt1cGRhdGVfdGltZRgHIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASHwoFdXNhZ2UYCCABKAsyEC5hZ2VudGQudjEuVXNhZ2USDwoHdmVyc2lvbhgJIAEoAxITCgtmb3JrZWRfZnJvbRgKIAEoCRIaChJmb3JrZWRfdGhyb3VnaF9zZXEYCyABKAMSFAoMbGFzdF90dXJuX2lkGAwgASgJEi8KEGxhc3RfdHVybl9zdGF0dXMYDSABKA4yFS5hZ2VudGQudjEuVHVyblN0YXR1cxIQCghsYXN0X3NlcRgOIAEoAxIOCgZwdXJnZWQYDyABKAgSIQoGYnVkZ2V0GBEgASgLMhEuYWdlbnRkLnYxLkJ1ZGdldBotCgtMYWJlbHNFbnRyeRILCgNrZXkYASABKAkSDQoFdmFsdWUYAiABKAk6AjgBIvQFCgRUdXJuEgoKAmlkGAEgASgJEhIKCnNlc3Npb25faWQYAiABKAkSJQoGc3RhdHVzGAMgASgOMhUuYWdlbnRkLnYxLlR1cm5TdGF0dXMSFgoOc3RhdHVzX21lc3NhZ2UYBCABKAkSKAoKZXJyb3JfY29kZRgFIAEoDjIULmFnZW50ZC52MS5FcnJvckNvZGUSEwoLdXNlcl9wcm9tcHQYBiABKAkSEwoLb3V0cHV0X3RleHQYByABKAkSHwoFdXNhZ2UYCCABKAsyEC5hZ2VudGQudjEuVXNhZ2USLwoLY3JlYXRlX3RpbWUYCSABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wEi4KCnN0YXJ0X3RpbWUYCiABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wEiwKCGVuZF90aW1lGAsgASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcBIrCghkdXJhdGlvbhgMIAEoCzIZLmdvb2dsZS5wcm90b2J1Zi5EdXJhdGlvbhIRCglhZnRlcl9zZXEYDSABKAMSQgoScGVuZGluZ190b29sX2NhbGxzGA4gAygLMiYuYWdlbnRkLnYxLlJ1blJlc3BvbnNlLlRvb2xDYWxsUmVxdWVzdBIVCg1pbmplY3RlZF9pbnRvGA8gASgJEikKB3JlY2VpcHQYECABKAsyGC5hZ2VudGQudjEuQ2FuY2VsUmVjZWlwdBIZChFzdHJ1Y3R1cmVkX291dHB1dBgRIAEoCRIqCgtzdG9wX3JlYXNvbhgSIAEoDjIVLmFnZW50ZC52MS5TdG9wUmVhc29uEg0KBW1vZGVsGBMgASgJEjQKFHBlbmRpbmdfaW50ZXJhY3Rpb25zGBQgAygLMhYuYWdlbnRkLnYxLkludGVyYWN0aW9uEiMKCnVzZXJfcGFydHMYFSADKAsyDy5hZ2VudGQudjEuUGFydBISCgpjcmVhdGVkX2J5GBYgASgJItIBChRDcmVhdGVTZXNzaW9uUmVxdWVzdBI7CgZsYWJlbHMYASADKAsyKy5hZ2VudGQudjEuQ3JlYXRlU2Vzc2lvblJlcXVlc3QuTGFiZWxzRW50cnkSEgoKY2xpZW50X3JlZhgCIAEoCRIXCg9pZGVtcG90ZW5jeV9rZXkYAyABKAkSIQoGYnVkZ2V0GAQgASgLMhEuYWdlbnRkLnYxLkJ1ZGdldBotCgtMYWJlbHNFbnRyeRILCgNrZXkYASABKAkSDQoFdmFsdWUYAiABKAk6AjgBIjwKFUNyZWF0ZVNlc3Npb25SZXNwb25zZRIjCgdzZXNzaW9uGAEgASgLMhIuYWdlbnRkLnYxLlNlc3Npb24iJwoRR2V0U2Vzc2lvblJlcXVlc3QSEgoKc2Vzc2lvbl9pZBgBIAEoCSI5ChJHZXRTZXNzaW9uUmVzcG9uc2USIwoHc2Vzc2lvbhgBIAEoCzISLmFnZW50ZC52MS5TZXNzaW9uIuADChNMaXN0U2Vzc2lvbnNSZXF1ZXN0EhEKCXBhZ2Vfc2l6ZRgBIAEoBRISCgpwYWdlX3Rva2VuGAIgASgJEicKBnN0YXRlcxgDIAMoDjIXLmFnZW50ZC52MS5TZXNzaW9uU3RhdGUSOgoGbGFiZWxzGAQgAygLMiouYWdlbnRkLnYxLkxpc3RTZXNzaW9uc1JlcXVlc3QuTGFiZWxzRW50cnkSEgoKY2xpZW50X3JlZhgFIAEoCRIsCg10dXJuX3N0YXR1c2VzGAYgAygOMhUuYWdlbnRkLnYxLlR1cm5TdGF0dXMSMQoNY3JlYXRlZF9zaW5jZRgHIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASMgoOY3JlYXRlZF9iZWZvcmUYCCABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wEjEKDXVwZGF0ZWRfc2luY2UYCSABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wEjIKDnVwZGF0ZWRfYmVmb3JlGAogASgLMhouZ29vZ2xlLnByb3RvYnVmLlRpbWVzdGFtcBotCgtMYWJlbHNFbnRyeRILCgNrZXkYASABKAkSDQoFdmFsdWUYAiABKAk6AjgBIlUKFExpc3RTZXNzaW9uc1Jlc3BvbnNlEiQKCHNlc3Npb25zGAEgAygLMhIuYWdlbnRkLnYxLlNlc3Npb24SFwoPbmV4dF9wYWdlX3Rva2VuGAIgASgJIroCChRVcGRhdGVTZXNzaW9uUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEhQKB3ZlcnNpb24YAiABKANIAIgBARI7CgZsYWJlbHMYAyADKAsyKy5hZ2VudGQudjEuVXBkYXRlU2Vzc2lvblJlcXVlc3QuTGFiZWxzRW50cnkSFwoKY2xpZW50X3JlZhgEIAEoCUgBiAEBEisKBXN0YXRlGAUgASgOMhcuYWdlbnRkLnYxLlNlc3Npb25TdGF0ZUgCiAEBEiEKBmJ1ZGdldBgGIAEoCzIRLmFnZW50ZC52MS5CdWRnZXQaLQoLTGFiZWxzRW50cnkSCwoDa2V5GAEgASgJEg0KBXZhbHVlGAIgASgJOgI4AUIKCghfdmVyc2lvbkINCgtfY2xpZW50X3JlZkIICgZfc3RhdGUiPAoVVXBkYXRlU2Vzc2lvblJlc3BvbnNlEiMKB3Nlc3Npb24YASABKAsyEi5hZ2VudGQudjEuU2Vzc2lvbiIqChREZWxldGVTZXNzaW9uUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJIhcKFURlbGV0ZVNlc3Npb25SZXNwb25zZSLpAQoSRm9ya1Nlc3Npb25SZXF1ZXN0EhIKCnNlc3Npb25faWQYASABKAkSGAoLdGhyb3VnaF9zZXEYAiABKANIAIgBARI5CgZsYWJlbHMYAyADKAsyKS5hZ2VudGQudjEuRm9ya1Nlc3Npb25SZXF1ZXN0LkxhYmVsc0VudHJ5EhIKCmNsaWVudF9yZWYYBCABKAkSFwoPaWRlbXBvdGVuY3lfa2V5GAUgASgJGi0KC0xhYmVsc0VudHJ5EgsKA2tleRgBIAEoCRINCgV2YWx1ZRgCIAEoCToCOAFCDgoMX3Rocm91Z2hfc2VxIjoKE0ZvcmtTZXNzaW9uUmVzcG9uc2USIwoHc2Vzc2lvbhgBIAEoCzISLmFnZW50ZC52MS5TZXNzaW9uIkoKEUNyZWF0ZVR1cm5SZXF1ZXN0EjUKB2V4ZWN1dGUYASABKAsyJC5hZ2VudGQudjEuUnVuUmVxdWVzdC5FeGVjdXRlUmVxdWVzdCJZChJDcmVhdGVUdXJuUmVzcG9uc2USHQoEdHVybhgBIAEoCzIPLmFnZW50ZC52MS5UdXJuEiQKCHdhcm5pbmdzGAIgAygLMhIuYWdlbnRkLnYxLldhcm5pbmciSQoOR2V0VHVyblJlcXVlc3QSEgoKc2Vzc2lvbl9pZBgBIAEoCRIPCgd0dXJuX2lkGAIgASgJEhIKCnVzZXJfcGFydHMYAyABKAgiMAoPR2V0VHVyblJlc3BvbnNlEh0KBHR1cm4YASABKAsyDy5hZ2VudGQudjEuVHVybiLdAQoQTGlzdFR1cm5zUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEhEKCXBhZ2Vfc2l6ZRgCIAEoBRISCgpwYWdlX3Rva2VuGAMgASgJEicKCHN0YXR1c2VzGAQgAygOMhUuYWdlbnRkLnYxLlR1cm5TdGF0dXMSMQoNY3JlYXRlZF9zaW5jZRgFIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXASMgoOY3JlYXRlZF9iZWZvcmUYBiABKAsyGi5nb29nbGUucHJvdG9idWYuVGltZXN0YW1wIkwKEUxpc3RUdXJuc1Jlc3BvbnNlEh4KBXR1cm5zGAEgAygLMg8uYWdlbnRkLnYxLlR1cm4SFwoPbmV4dF9wYWdlX3Rva2VuGAIgASgJIkgKEUNhbmNlbFR1cm5SZXF1ZXN0EhIKCnNlc3Npb25faWQYASABKAkSDwoHdHVybl9pZBgCIAEoCRIOCgZyZWFzb24YAyABKAkiMwoSQ2FuY2VsVHVyblJlc3BvbnNlEh0KBHR1cm4YASABKAsyDy5hZ2VudGQudjEuVHVybiJSChVDYW5jZWxUb29sQ2FsbFJlcXVlc3QSEgoKc2Vzc2lvbl9pZBgBIAEoCRIPCgd0dXJuX2lkGAIgASgJEhQKDHRvb2xfY2FsbF9pZBgDIAEoCSI3ChZDYW5jZWxUb29sQ2FsbFJlc3BvbnNlEh0KBHR1cm4YASABKAsyDy5hZ2VudGQudjEuVHVybiK5AQoVTGlzdFR1cm5FdmVudHNSZXF1ZXN0EhIKCnNlc3Npb25faWQYASABKAkSDwoHdHVybl9pZBgCIAEoCRIWCglhZnRlcl9zZXEYAyABKANIAIgBARIRCglwYWdlX3NpemUYBCABKAUSDwoHZGlzcGxheRgFIAEoCBIxCgp2aXNpYmlsaXR5GAYgASgOMh0uYWdlbnRkLnYxLkRpc3BsYXkuVmlzaWJpbGl0eUIMCgpfYWZ0ZXJfc2VxImYKFkxpc3RUdXJuRXZlbnRzUmVzcG9uc2USJgoGZXZlbnRzGAEgAygLMhYuYWdlbnRkLnYxLlJ1blJlc3BvbnNlEgwKBG1vcmUYAiABKAgSFgoObmV4dF9hZnRlcl9zZXEYAyABKAMixgEKEFdhdGNoVHVyblJlcXVlc3QSEgoKc2Vzc2lvbl9pZBgBIAEoCRIPCgd0dXJuX2lkGAIgASgJEhYKCWFmdGVyX3NlcRgDIAEoA0gAiAEBEhIKCnRvb2xfbmFtZXMYBCADKAkSDwoHZGlzcGxheRgFIAEoCBIxCgp2aXNpYmlsaXR5GAYgASgOMh0uYWdlbnRkLnYxLkRpc3BsYXkuVmlzaWJpbGl0eRIPCgdvYnNlcnZlGAcgASgIQgwKCl9hZnRlcl9zZXEiOgoRV2F0Y2hUdXJuUmVzcG9uc2USJQoFZXZlbnQYASABKAsyFi5hZ2VudGQudjEuUnVuUmVzcG9uc2UilQEKGExpc3RTZXNzaW9uRXZlbnRzUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEg4KBmN1cnNvchgCIAEoCRIRCglwYWdlX3NpemUYAyABKAUSDwoHZGlzcGxheRgEIAEoCBIxCgp2aXNpYmlsaXR5GAUgASgOMh0uYWdlbnRkLnYxLkRpc3BsYXkuVmlzaWJpbGl0eSJFCgxTZXNzaW9uRXZlbnQSJQoFZXZlbnQYASABKAsyFi5hZ2VudGQudjEuUnVuUmVzcG9uc2USDgoGY3Vyc29yGAIgASgJImcKGUxpc3RTZXNzaW9uRXZlbnRzUmVzcG9uc2USJwoGZXZlbnRzGAEgAygLMhcuYWdlbnRkLnYxLlNlc3Npb25FdmVudBITCgtuZXh0X2N1cnNvchgCIAEoCRIMCgRtb3JlGAMgASgIIpsBChNXYXRjaFNlc3Npb25SZXF1ZXN0EhIKCnNlc3Npb25faWQYASABKAkSDgoGY3Vyc29yGAIgASgJEg8KB2Rpc3BsYXkYAyABKAgSMQoKdmlzaWJpbGl0eRgEIAEoDjIdLmFnZW50ZC52MS5EaXNwbGF5LlZpc2liaWxpdHlKBAgFEAZKBAgGEAdSBHRyZWVSCnRvb2xfbmFtZXMiTQoUV2F0Y2hTZXNzaW9uUmVzcG9uc2USJQoFZXZlbnQYASABKAsyFi5hZ2VudGQudjEuUnVuUmVzcG9uc2USDgoGY3Vyc29yGAIgASgJIngKGFN1Ym1pdFRvb2xSZXN1bHRzUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEg8KB3R1cm5faWQYAiABKAkSNwoHcmVzdWx0cxgDIAMoCzImLmFnZW50ZC52MS5SdW5SZXF1ZXN0LlRvb2xDYWxsUmVzcG9uc2UiaQoZU3VibWl0VG9vbFJlc3VsdHNSZXNwb25zZRItCgdyZWZ1c2VkGAEgAygLMhwuYWdlbnRkLnYxLlJlZnVzZWRUb29sUmVzdWx0Eh0KBHR1cm4YAiABKAsyDy5hZ2VudGQudjEuVHVybiJeChFSZWZ1c2VkVG9vbFJlc3VsdBIUCgx0b29sX2NhbGxfaWQYASABKAkSMwoFZXJyb3IYAiABKAsyJC5hZ2VudGQudjEuUnVuUmVzcG9uc2UuRXJyb3JSZXNwb25zZSJDChVHZXRJbnRlcmFjdGlvblJlcXVlc3QSEgoKc2Vzc2lvbl9pZBgBIAEoCRIWCg5pbnRlcmFjdGlvbl9pZBgCIAEoCSJFChZHZXRJbnRlcmFjdGlvblJlc3BvbnNlEisKC2ludGVyYWN0aW9uGAEgASgLMhYuYWdlbnRkLnYxLkludGVyYWN0aW9uIpUBChdMaXN0SW50ZXJhY3Rpb25zUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEg8KB3R1cm5faWQYAiABKAkSEQoJcGFnZV9zaXplGAMgASgFEhIKCnBhZ2VfdG9rZW4YBCABKAkSLgoIc3RhdHVzZXMYBSADKA4yHC5hZ2VudGQudjEuSW50ZXJhY3Rpb25TdGF0dXMiYQoYTGlzdEludGVyYWN0aW9uc1Jlc3BvbnNlEiwKDGludGVyYWN0aW9ucxgBIAMoCzIWLmFnZW50ZC52MS5JbnRlcmFjdGlvbhIXCg9uZXh0X3BhZ2VfdG9rZW4YAiABKAkicgoZUmVzb2x2ZUludGVyYWN0aW9uUmVxdWVzdBISCgpzZXNzaW9uX2lkGAEgASgJEhYKDmludGVyYWN0aW9uX2lkGAIgASgJEikKCnJlc29sdXRpb24YAyABKAsyFS5hZ2VudGQudjEuUmVzb2x1dGlvbiJJChpSZXNvbHZlSW50ZXJhY3Rpb25SZXNwb25zZRIrCgtpbnRlcmFjdGlvbhgBIAEoCzIWLmFnZW50ZC52MS5JbnRlcmFjdGlvbiIYChZHZXRDYXBhYmlsaXRpZXNSZXF1ZXN0It4BChdHZXRDYXBhYmlsaXRpZXNSZXNwb25zZRIPCgd2ZXJzaW9uGAEgASgJEiYKCXByb3ZpZGVycxgCIAMoCzITLmFnZW50ZC52MS5Qcm92aWRlchIVCg1idWlsdGluX3Rvb2xzGAMgAygJEhgKEG1heF9wcm9tcHRfYnl0ZXMYBCABKAMSGQoRbWF4X21lc3NhZ2VfYnl0ZXMYBSABKAMSLAoJcmV0ZW50aW9uGAYgASgLMhkuZ29vZ2xlLnByb3RvYnVmLkR1cmF0aW9uEhAKCGZlYXR1cmVzGAcgAygJIlQKCFByb3ZpZGVyEgwKBG5hbWUYASABKAkSDwoHaGFzX2tleRgCIAEoCBIVCg1idWlsdGluX3Rvb2xzGAMgAygJEhIKCmtleV9oZWFkZXIYBCABKAkiEwoRTGlzdE1vZGVsc1JlcXVlc3QiSwoSTGlzdE1vZGVsc1Jlc3BvbnNlEiAKBm1vZGVscxgBIAMoCzIQLmFnZW50ZC52MS5Nb2RlbBITCgtwcmljZXNfZGF0ZRgCIAEoCSLMAQoFTW9kZWwSDAoEbmFtZRgBIAEoCRIQCghwcm92aWRlchgCIAEoCRIRCglhdmFpbGFibGUYAyABKAgSJAoFcHJpY2UYBCABKAsyFS5hZ2VudGQudjEuTW9kZWxQcmljZRIyCgxjYXBhYmlsaXRpZXMYBSABKAsyHC5hZ2VudGQudjEuTW9kZWxDYXBhYmlsaXRpZXMSFQoNYnVpbHRpbl90b29scxgGIAMoCRIOCgZzb3VyY2UYByABKAkSDwoHcmV0aXJlcxgIIAEoCSI/CgpNb2RlbFByaWNlEiMKBXRpZXJzGAEgAygLMhQuYWdlbnRkLnYxLlByaWNlVGllchIMCgRkYXRlGAIgASgJIq0BCglQcmljZVRpZXISGwoTYWJvdmVfcHJvbXB0X3Rva2VucxgBIAEoAxINCgVpbnB1dBgCIAEoARIOCgZjYWNoZWQYAyABKAESDgoGb3V0cHV0GAQgASgBEhUKCHRoaW5raW5nGAUgASgBSACIAQESMAoMY2FjaGVfd3JpdGVzGAYgAygLMhouYWdlbnRkLnYxLkNhY2hlV3JpdGVQcmljZUILCglfdGhpbmtpbmciSAoPQ2FjaGVXcml0ZVByaWNlEiYKA3R0bBgBIAEoCzIZLmdvb2dsZS5wcm90b2J1Zi5EdXJhdGlvbhINCgVwcmljZRgCIAEoASKOAQoRTW9kZWxDYXBhYmlsaXRpZXMSFgoOY29udGV4dF90b2tlbnMYASABKAMSFQoNb3V0cHV0X3Rva2VucxgCIAEoAxIOCgZpbnB1dHMYAyADKAkSEAoIdGhpbmtpbmcYBCABKAgSDQoFdG9vbHMYBSABKAgSGQoRc3RydWN0dXJlZF9vdXRwdXQYBiABKAgiYwoVTGlzdE1vZGVsQ2FsbHNSZXF1ZXN0EhIKCnNlc3Npb25faWQYASABKAkSDwoHdHVybl9pZBgCIAEoCRIRCglwYWdlX3NpemUYAyABKAUSEgoKcGFnZV90b2tlbhgEIAEoCSJdChZMaXN0TW9kZWxDYWxsc1Jlc3BvbnNlEioKBWNhbGxzGAEgAygLMhsuYWdlbnRkLnYxLk1vZGVsQ2FsbERldGFpbHMSFwoPbmV4dF9wYWdlX3Rva2VuGAIgASgJIroBChBNb2RlbENhbGxEZXRhaWxzEicKBGNhbGwYASABKAsyGS5hZ2VudGQudjEuTW9kZWxDYWxsRW5kZWQSEwoLaW5zdHJ1Y3Rpb24YAiABKAkSEgoKdG9vbF9uYW1lcxgDIAMoCRIxCgpnZW5lcmF0aW9uGAQgASgLMh0uYWdlbnRkLnYxLkdlbmVyYXRpb25TZXR0aW5ncxIQCghjb250ZW50cxgFIAEoBRIPCgdzdW1tYXJ5GAYgASgJIk8KFkxpc3RTaGFyZWRTdGF0ZVJlcXVlc3QSEQoJcGFnZV9zaXplGAEgASgFEhIKCnBhZ2VfdG9rZW4YAiABKAkSDgoGcHJlZml4GAMgASgJImAKF0xpc3RTaGFyZWRTdGF0ZVJlc3BvbnNlEiwKB2VudHJpZXMYASADKAsyGy5hZ2VudGQudjEuU2hhcmVkU3RhdGVFbnRyeRIXCg9uZXh0X3BhZ2VfdG9rZW4YAiABKAkiPQoQU2hhcmVkU3RhdGVFbnRyeRILCgNrZXkYASABKAkSDQoFdmFsdWUYAiABKAkSDQoFYnl0ZXMYAyABKAMiRAoVU2V0U2hhcmVkU3RhdGVSZXF1ZXN0EisKBnZhbHVlcxgBIAMoCzIbLmFnZW50ZC52MS5TaGFyZWRTdGF0ZVZhbHVlIi4KEFNoYXJlZFN0YXRlVmFsdWUSCwoDa2V5GAEgASgJEg0KBXZhbHVlGAIgASgJIhgKFlNldFNoYXJlZFN0YXRlUmVzcG9uc2UiKAoYUmVtb3ZlU2hhcmVkU3RhdGVSZXF1ZXN0EgwKBGtleXMYASADKAkiLAoZUmVtb3ZlU2hhcmVkU3RhdGVSZXNwb25zZRIPCgdyZW1vdmVkGAEgAygJIpEBChlDcmVhdGVTZXNzaW9uVG9rZW5SZXF1ZXN0EhIKCnNlc3Npb25faWQYASABKAkSEgoKdG9vbF9uYW1lcxgCIAMoCRIrCghsaWZldGltZRgDIAEoCzIZLmdvb2dsZS5wcm90b2J1Zi5EdXJhdGlvbhIPCgdvYnNlcnZlGAQgASgIEg4KBmFnZW50cxgFIAEoCCJcChpDcmVhdGVTZXNzaW9uVG9rZW5SZXNwb25zZRINCgV0b2tlbhgBIAEoCRIvCgtleHBpcmVfdGltZRgCIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXAqYwoMU2Vzc2lvblN0YXRlEh0KGVNFU1NJT05fU1RBVEVfVU5TUEVDSUZJRUQQABIYChRTRVNTSU9OX1NUQVRFX0FDVElWRRABEhoKFlNFU1NJT05fU1RBVEVfQVJDSElWRUQQAirvAQoKVHVyblN0YXR1cxIbChdUVVJOX1NUQVRVU19VTlNQRUNJRklFRBAAEhcKE1RVUk5fU1RBVFVTX1BFTkRJTkcQARIXChNUVVJOX1NUQVRVU19SVU5OSU5HEAISIgoeVFVSTl9TVEFUVVNfV0FJVElOR19GT1JfQ0xJRU5UEAMSIQodVFVSTl9TVEFUVVNfV0FJVElOR19GT1JfSU5QVVQQBBIZChVUVVJOX1NUQVRVU19TVUNDRUVERUQQBRIWChJUVVJOX1NUQVRVU19GQUlMRUQQBhIYChRUVVJOX1NUQVRVU19DQU5DRUxFRBAHMuQRCg5TZXNzaW9uU2VydmljZRJSCg1DcmVhdGVTZXNzaW9uEh8uYWdlbnRkLnYxLkNyZWF0ZVNlc3Npb25SZXF1ZXN0GiAuYWdlbnRkLnYxLkNyZWF0ZVNlc3Npb25SZXNwb25zZRJOCgpHZXRTZXNzaW9uEhwuYWdlbnRkLnYxLkdldFNlc3Npb25SZXF1ZXN0Gh0uYWdlbnRkLnYxLkdldFNlc3Npb25SZXNwb25zZSIDkAIBElQKDExpc3RTZXNzaW9ucxIeLmFnZW50ZC52MS5MaXN0U2Vzc2lvbnNSZXF1ZXN0Gh8uYWdlbnRkLnYxLkxpc3RTZXNzaW9uc1Jlc3BvbnNlIgOQAgESUgoNVXBkYXRlU2Vzc2lvbhIfLmFnZW50ZC52MS5VcGRhdGVTZXNzaW9uUmVxdWVzdBogLmFnZW50ZC52MS5VcGRhdGVTZXNzaW9uUmVzcG9uc2USUgoNRGVsZXRlU2Vzc2lvbhIfLmFnZW50ZC52MS5EZWxldGVTZXNzaW9uUmVxdWVzdBogLmFnZW50ZC52MS5EZWxldGVTZXNzaW9uUmVzcG9uc2USTAoLRm9ya1Nlc3Npb24SHS5hZ2VudGQudjEuRm9ya1Nlc3Npb25SZXF1ZXN0Gh4uYWdlbnRkLnYxLkZvcmtTZXNzaW9uUmVzcG9uc2USSQoKQ3JlYXRlVHVybhIcLmFnZW50ZC52MS5DcmVhdGVUdXJuUmVxdWVzdBodLmFnZW50ZC52MS5DcmVhdGVUdXJuUmVzcG9uc2USRQoHR2V0VHVybhIZLmFnZW50ZC52MS5HZXRUdXJuUmVxdWVzdBoaLmFnZW50ZC52MS5HZXRUdXJuUmVzcG9uc2UiA5ACARJLCglMaXN0VHVybnMSGy5hZ2VudGQudjEuTGlzdFR1cm5zUmVxdWVzdBocLmFnZW50ZC52MS5MaXN0VHVybnNSZXNwb25zZSIDkAIBEkkKCkNhbmNlbFR1cm4SHC5hZ2VudGQudjEuQ2FuY2VsVHVyblJlcXVlc3QaHS5hZ2VudGQudjEuQ2FuY2VsVHVyblJlc3BvbnNlElUKDkNhbmNlbFRvb2xDYWxsEiAuYWdlbnRkLnYxLkNhbmNlbFRvb2xDYWxsUmVxdWVzdBohLmFnZW50ZC52MS5DYW5jZWxUb29sQ2FsbFJlc3BvbnNlEloKDkxpc3RUdXJuRXZlbnRzEiAuYWdlbnRkLnYxLkxpc3RUdXJuRXZlbnRzUmVxdWVzdBohLmFnZW50ZC52MS5MaXN0VHVybkV2ZW50c1Jlc3BvbnNlIgOQAgESSAoJV2F0Y2hUdXJuEhsuYWdlbnRkLnYxLldhdGNoVHVyblJlcXVlc3QaHC5hZ2VudGQudjEuV2F0Y2hUdXJuUmVzcG9uc2UwARJjChFMaXN0U2Vzc2lvbkV2ZW50cxIjLmFnZW50ZC52MS5MaXN0U2Vzc2lvbkV2ZW50c1JlcXVlc3QaJC5hZ2VudGQudjEuTGlzdFNlc3Npb25FdmVudHNSZXNwb25zZSIDkAIBElEKDFdhdGNoU2Vzc2lvbhIeLmFnZW50ZC52MS5XYXRjaFNlc3Npb25SZXF1ZXN0Gh8uYWdlbnRkLnYxLldhdGNoU2Vzc2lvblJlc3BvbnNlMAESXgoRU3VibWl0VG9vbFJlc3VsdHMSIy5hZ2VudGQudjEuU3VibWl0VG9vbFJlc3VsdHNSZXF1ZXN0GiQuYWdlbnRkLnYxLlN1Ym1pdFRvb2xSZXN1bHRzUmVzcG9uc2USWgoOR2V0SW50ZXJhY3Rpb24SIC5hZ2VudGQudjEuR2V0SW50ZXJhY3Rpb25SZXF1ZXN0GiEuYWdlbnRkLnYxLkdldEludGVyYWN0aW9uUmVzcG9uc2UiA5ACARJgChBMaXN0SW50ZXJhY3Rpb25zEiIuYWdlbnRkLnYxLkxpc3RJbnRlcmFjdGlvbnNSZXF1ZXN0GiMuYWdlbnRkLnYxLkxpc3RJbnRlcmFjdGlvbnNSZXNwb25zZSIDkAIBEmEKElJlc29sdmVJbnRlcmFjdGlvbhIkLmFnZW50ZC52MS5SZXNvbHZlSW50ZXJhY3Rpb25SZXF1ZXN0GiUuYWdlbnRkLnYxLlJlc29sdmVJbnRlcmFjdGlvblJlc3BvbnNlEloKDkxpc3RNb2RlbENhbGxzEiAuYWdlbnRkLnYxLkxpc3RNb2RlbENhbGxzUmVxdWVzdBohLmFnZW50ZC52MS5MaXN0TW9kZWxDYWxsc1Jlc3BvbnNlIgOQAgESXQoPR2V0Q2FwYWJpbGl0aWVzEiEuYWdlbnRkLnYxLkdldENhcGFiaWxpdGllc1JlcXVlc3QaIi5hZ2VudGQudjEuR2V0Q2FwYWJpbGl0aWVzUmVzcG9uc2UiA5ACARJdCg9MaXN0U2hhcmVkU3RhdGUSIS5hZ2VudGQudjEuTGlzdFNoYXJlZFN0YXRlUmVxdWVzdBoiLmFnZW50ZC52MS5MaXN0U2hhcmVkU3RhdGVSZXNwb25zZSIDkAIBElUKDlNldFNoYXJlZFN0YXRlEiAuYWdlbnRkLnYxLlNldFNoYXJlZFN0YXRlUmVxdWVzdBohLmFnZW50ZC52MS5TZXRTaGFyZWRTdGF0ZVJlc3BvbnNlEl4KEVJlbW92ZVNoYXJlZFN0YXRlEiMuYWdlbnRkLnYxLlJlbW92ZVNoYXJlZFN0YXRlUmVxdWVzdBokLmFnZW50ZC52MS5SZW1vdmVTaGFyZWRTdGF0ZVJlc3BvbnNlEk4KCkxpc3RNb2RlbHMSHC5hZ2VudGQudjEuTGlzdE1vZGVsc1JlcXVlc3QaHS5hZ2VudGQudjEuTGlzdE1vZGVsc1Jlc3BvbnNlIgOQAgESYQoSQ3JlYXRlU2Vzc2lvblRva2VuEiQuYWdlbnRkLnYxLkNyZWF0ZVNlc3Npb25Ub2tlblJlcXVlc3QaJS5hZ2VudGQudjEuQ3JlYXRlU2Vzc2lvblRva2VuUmVzcG9uc2VCOlo4Z2l0aHViLmNvbS9hcHp1azMvYWdlbnRkL2dlbi9wcm90by9nby9hZ2VudGQvdjE7YWdlbnRkdjFiBnByb3RvMw", [file_agentd_v1_interactions, file_agentd_v1_service, file_agentd_v1_types, file_google_protobuf_duration, file_google_protobuf_timestamp]);
/**
 * Describes the message agentd.v1.Session.
 * Use `create(SessionSchema)` to create a new message.
 */
export const SessionSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 0);
/**
 * Describes the message agentd.v1.Turn.
 * Use `create(TurnSchema)` to create a new message.
 */
export const TurnSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 1);
/**
 * Describes the message agentd.v1.CreateSessionRequest.
 * Use `create(CreateSessionRequestSchema)` to create a new message.
 */
export const CreateSessionRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 2);
/**
 * Describes the message agentd.v1.CreateSessionResponse.
 * Use `create(CreateSessionResponseSchema)` to create a new message.
 */
export const CreateSessionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 3);
/**
 * Describes the message agentd.v1.GetSessionRequest.
 * Use `create(GetSessionRequestSchema)` to create a new message.
 */
export const GetSessionRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 4);
/**
 * Describes the message agentd.v1.GetSessionResponse.
 * Use `create(GetSessionResponseSchema)` to create a new message.
 */
export const GetSessionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 5);
/**
 * Describes the message agentd.v1.ListSessionsRequest.
 * Use `create(ListSessionsRequestSchema)` to create a new message.
 */
export const ListSessionsRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 6);
/**
 * Describes the message agentd.v1.ListSessionsResponse.
 * Use `create(ListSessionsResponseSchema)` to create a new message.
 */
export const ListSessionsResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 7);
/**
 * Describes the message agentd.v1.UpdateSessionRequest.
 * Use `create(UpdateSessionRequestSchema)` to create a new message.
 */
export const UpdateSessionRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 8);
/**
 * Describes the message agentd.v1.UpdateSessionResponse.
 * Use `create(UpdateSessionResponseSchema)` to create a new message.
 */
export const UpdateSessionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 9);
/**
 * Describes the message agentd.v1.DeleteSessionRequest.
 * Use `create(DeleteSessionRequestSchema)` to create a new message.
 */
export const DeleteSessionRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 10);
/**
 * Describes the message agentd.v1.DeleteSessionResponse.
 * Use `create(DeleteSessionResponseSchema)` to create a new message.
 */
export const DeleteSessionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 11);
/**
 * Describes the message agentd.v1.ForkSessionRequest.
 * Use `create(ForkSessionRequestSchema)` to create a new message.
 */
export const ForkSessionRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 12);
/**
 * Describes the message agentd.v1.ForkSessionResponse.
 * Use `create(ForkSessionResponseSchema)` to create a new message.
 */
export const ForkSessionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 13);
/**
 * Describes the message agentd.v1.CreateTurnRequest.
 * Use `create(CreateTurnRequestSchema)` to create a new message.
 */
export const CreateTurnRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 14);
/**
 * Describes the message agentd.v1.CreateTurnResponse.
 * Use `create(CreateTurnResponseSchema)` to create a new message.
 */
export const CreateTurnResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 15);
/**
 * Describes the message agentd.v1.GetTurnRequest.
 * Use `create(GetTurnRequestSchema)` to create a new message.
 */
export const GetTurnRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 16);
/**
 * Describes the message agentd.v1.GetTurnResponse.
 * Use `create(GetTurnResponseSchema)` to create a new message.
 */
export const GetTurnResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 17);
/**
 * Describes the message agentd.v1.ListTurnsRequest.
 * Use `create(ListTurnsRequestSchema)` to create a new message.
 */
export const ListTurnsRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 18);
/**
 * Describes the message agentd.v1.ListTurnsResponse.
 * Use `create(ListTurnsResponseSchema)` to create a new message.
 */
export const ListTurnsResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 19);
/**
 * Describes the message agentd.v1.CancelTurnRequest.
 * Use `create(CancelTurnRequestSchema)` to create a new message.
 */
export const CancelTurnRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 20);
/**
 * Describes the message agentd.v1.CancelTurnResponse.
 * Use `create(CancelTurnResponseSchema)` to create a new message.
 */
export const CancelTurnResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 21);
/**
 * Describes the message agentd.v1.CancelToolCallRequest.
 * Use `create(CancelToolCallRequestSchema)` to create a new message.
 */
export const CancelToolCallRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 22);
/**
 * Describes the message agentd.v1.CancelToolCallResponse.
 * Use `create(CancelToolCallResponseSchema)` to create a new message.
 */
export const CancelToolCallResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 23);
/**
 * Describes the message agentd.v1.ListTurnEventsRequest.
 * Use `create(ListTurnEventsRequestSchema)` to create a new message.
 */
export const ListTurnEventsRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 24);
/**
 * Describes the message agentd.v1.ListTurnEventsResponse.
 * Use `create(ListTurnEventsResponseSchema)` to create a new message.
 */
export const ListTurnEventsResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 25);
/**
 * Describes the message agentd.v1.WatchTurnRequest.
 * Use `create(WatchTurnRequestSchema)` to create a new message.
 */
export const WatchTurnRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 26);
/**
 * Describes the message agentd.v1.WatchTurnResponse.
 * Use `create(WatchTurnResponseSchema)` to create a new message.
 */
export const WatchTurnResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 27);
/**
 * Describes the message agentd.v1.ListSessionEventsRequest.
 * Use `create(ListSessionEventsRequestSchema)` to create a new message.
 */
export const ListSessionEventsRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 28);
/**
 * Describes the message agentd.v1.SessionEvent.
 * Use `create(SessionEventSchema)` to create a new message.
 */
export const SessionEventSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 29);
/**
 * Describes the message agentd.v1.ListSessionEventsResponse.
 * Use `create(ListSessionEventsResponseSchema)` to create a new message.
 */
export const ListSessionEventsResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 30);
/**
 * Describes the message agentd.v1.WatchSessionRequest.
 * Use `create(WatchSessionRequestSchema)` to create a new message.
 */
export const WatchSessionRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 31);
/**
 * Describes the message agentd.v1.WatchSessionResponse.
 * Use `create(WatchSessionResponseSchema)` to create a new message.
 */
export const WatchSessionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 32);
/**
 * Describes the message agentd.v1.SubmitToolResultsRequest.
 * Use `create(SubmitToolResultsRequestSchema)` to create a new message.
 */
export const SubmitToolResultsRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 33);
/**
 * Describes the message agentd.v1.SubmitToolResultsResponse.
 * Use `create(SubmitToolResultsResponseSchema)` to create a new message.
 */
export const SubmitToolResultsResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 34);
/**
 * Describes the message agentd.v1.RefusedToolResult.
 * Use `create(RefusedToolResultSchema)` to create a new message.
 */
export const RefusedToolResultSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 35);
/**
 * Describes the message agentd.v1.GetInteractionRequest.
 * Use `create(GetInteractionRequestSchema)` to create a new message.
 */
export const GetInteractionRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 36);
/**
 * Describes the message agentd.v1.GetInteractionResponse.
 * Use `create(GetInteractionResponseSchema)` to create a new message.
 */
export const GetInteractionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 37);
/**
 * Describes the message agentd.v1.ListInteractionsRequest.
 * Use `create(ListInteractionsRequestSchema)` to create a new message.
 */
export const ListInteractionsRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 38);
/**
 * Describes the message agentd.v1.ListInteractionsResponse.
 * Use `create(ListInteractionsResponseSchema)` to create a new message.
 */
export const ListInteractionsResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 39);
/**
 * Describes the message agentd.v1.ResolveInteractionRequest.
 * Use `create(ResolveInteractionRequestSchema)` to create a new message.
 */
export const ResolveInteractionRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 40);
/**
 * Describes the message agentd.v1.ResolveInteractionResponse.
 * Use `create(ResolveInteractionResponseSchema)` to create a new message.
 */
export const ResolveInteractionResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 41);
/**
 * Describes the message agentd.v1.GetCapabilitiesRequest.
 * Use `create(GetCapabilitiesRequestSchema)` to create a new message.
 */
export const GetCapabilitiesRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 42);
/**
 * Describes the message agentd.v1.GetCapabilitiesResponse.
 * Use `create(GetCapabilitiesResponseSchema)` to create a new message.
 */
export const GetCapabilitiesResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 43);
/**
 * Describes the message agentd.v1.Provider.
 * Use `create(ProviderSchema)` to create a new message.
 */
export const ProviderSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 44);
/**
 * Describes the message agentd.v1.ListModelsRequest.
 * Use `create(ListModelsRequestSchema)` to create a new message.
 */
export const ListModelsRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 45);
/**
 * Describes the message agentd.v1.ListModelsResponse.
 * Use `create(ListModelsResponseSchema)` to create a new message.
 */
export const ListModelsResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 46);
/**
 * Describes the message agentd.v1.Model.
 * Use `create(ModelSchema)` to create a new message.
 */
export const ModelSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 47);
/**
 * Describes the message agentd.v1.ModelPrice.
 * Use `create(ModelPriceSchema)` to create a new message.
 */
export const ModelPriceSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 48);
/**
 * Describes the message agentd.v1.PriceTier.
 * Use `create(PriceTierSchema)` to create a new message.
 */
export const PriceTierSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 49);
/**
 * Describes the message agentd.v1.CacheWritePrice.
 * Use `create(CacheWritePriceSchema)` to create a new message.
 */
export const CacheWritePriceSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 50);
/**
 * Describes the message agentd.v1.ModelCapabilities.
 * Use `create(ModelCapabilitiesSchema)` to create a new message.
 */
export const ModelCapabilitiesSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 51);
/**
 * Describes the message agentd.v1.ListModelCallsRequest.
 * Use `create(ListModelCallsRequestSchema)` to create a new message.
 */
export const ListModelCallsRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 52);
/**
 * Describes the message agentd.v1.ListModelCallsResponse.
 * Use `create(ListModelCallsResponseSchema)` to create a new message.
 */
export const ListModelCallsResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 53);
/**
 * Describes the message agentd.v1.ModelCallDetails.
 * Use `create(ModelCallDetailsSchema)` to create a new message.
 */
export const ModelCallDetailsSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 54);
/**
 * Describes the message agentd.v1.ListSharedStateRequest.
 * Use `create(ListSharedStateRequestSchema)` to create a new message.
 */
export const ListSharedStateRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 55);
/**
 * Describes the message agentd.v1.ListSharedStateResponse.
 * Use `create(ListSharedStateResponseSchema)` to create a new message.
 */
export const ListSharedStateResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 56);
/**
 * Describes the message agentd.v1.SharedStateEntry.
 * Use `create(SharedStateEntrySchema)` to create a new message.
 */
export const SharedStateEntrySchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 57);
/**
 * Describes the message agentd.v1.SetSharedStateRequest.
 * Use `create(SetSharedStateRequestSchema)` to create a new message.
 */
export const SetSharedStateRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 58);
/**
 * Describes the message agentd.v1.SharedStateValue.
 * Use `create(SharedStateValueSchema)` to create a new message.
 */
export const SharedStateValueSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 59);
/**
 * Describes the message agentd.v1.SetSharedStateResponse.
 * Use `create(SetSharedStateResponseSchema)` to create a new message.
 */
export const SetSharedStateResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 60);
/**
 * Describes the message agentd.v1.RemoveSharedStateRequest.
 * Use `create(RemoveSharedStateRequestSchema)` to create a new message.
 */
export const RemoveSharedStateRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 61);
/**
 * Describes the message agentd.v1.RemoveSharedStateResponse.
 * Use `create(RemoveSharedStateResponseSchema)` to create a new message.
 */
export const RemoveSharedStateResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 62);
/**
 * Describes the message agentd.v1.CreateSessionTokenRequest.
 * Use `create(CreateSessionTokenRequestSchema)` to create a new message.
 */
export const CreateSessionTokenRequestSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 63);
/**
 * Describes the message agentd.v1.CreateSessionTokenResponse.
 * Use `create(CreateSessionTokenResponseSchema)` to create a new message.
 */
export const CreateSessionTokenResponseSchema = /*@__PURE__*/ messageDesc(file_agentd_v1_sessions, 64);
/**
 * SessionState is whether a session takes new turns.
 *
 * @generated from enum agentd.v1.SessionState
 */
export var SessionState;
(function (SessionState) {
    /**
     * Never sent.
     *
     * @generated from enum value: SESSION_STATE_UNSPECIFIED = 0;
     */
    SessionState[SessionState["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * It does.
     *
     * @generated from enum value: SESSION_STATE_ACTIVE = 1;
     */
    SessionState[SessionState["ACTIVE"] = 1] = "ACTIVE";
    /**
     * It does not, until it is active again. A turn that runs is not stopped by it.
     *
     * @generated from enum value: SESSION_STATE_ARCHIVED = 2;
     */
    SessionState[SessionState["ARCHIVED"] = 2] = "ARCHIVED";
})(SessionState || (SessionState = {}));
/**
 * Describes the enum agentd.v1.SessionState.
 */
export const SessionStateSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_sessions, 0);
/**
 * TurnStatus is how a turn is.
 *
 * @generated from enum agentd.v1.TurnStatus
 */
export var TurnStatus;
(function (TurnStatus) {
    /**
     * Never sent.
     *
     * @generated from enum value: TURN_STATUS_UNSPECIFIED = 0;
     */
    TurnStatus[TurnStatus["UNSPECIFIED"] = 0] = "UNSPECIFIED";
    /**
     * It waits for the turns before it.
     *
     * @generated from enum value: TURN_STATUS_PENDING = 1;
     */
    TurnStatus[TurnStatus["PENDING"] = 1] = "PENDING";
    /**
     * It runs.
     *
     * @generated from enum value: TURN_STATUS_RUNNING = 2;
     */
    TurnStatus[TurnStatus["RUNNING"] = 2] = "RUNNING";
    /**
     * It waits for a client: for the result of a tool that no attached client has, or
     * for its caller's own key.
     *
     * @generated from enum value: TURN_STATUS_WAITING_FOR_CLIENT = 3;
     */
    TurnStatus[TurnStatus["WAITING_FOR_CLIENT"] = 3] = "WAITING_FOR_CLIENT";
    /**
     * It waits for a person.
     *
     * @generated from enum value: TURN_STATUS_WAITING_FOR_INPUT = 4;
     */
    TurnStatus[TurnStatus["WAITING_FOR_INPUT"] = 4] = "WAITING_FOR_INPUT";
    /**
     * The tree has finished naturally.
     *
     * @generated from enum value: TURN_STATUS_SUCCEEDED = 5;
     */
    TurnStatus[TurnStatus["SUCCEEDED"] = 5] = "SUCCEEDED";
    /**
     * An error ended it.
     *
     * @generated from enum value: TURN_STATUS_FAILED = 6;
     */
    TurnStatus[TurnStatus["FAILED"] = 6] = "FAILED";
    /**
     * Somebody stopped it.
     *
     * @generated from enum value: TURN_STATUS_CANCELED = 7;
     */
    TurnStatus[TurnStatus["CANCELED"] = 7] = "CANCELED";
})(TurnStatus || (TurnStatus = {}));
/**
 * Describes the enum agentd.v1.TurnStatus.
 */
export const TurnStatusSchema = /*@__PURE__*/ enumDesc(file_agentd_v1_sessions, 1);
/**
 * SessionService runs turns in the background. A turn that it has created and one
 * that was started by Agentd.Run are the same: either may be followed,
 * given results and canceled by the other.
 *
 * It is served on the port of Agentd for the Connect, gRPC and gRPC-Web
 * protocols, binary and JSON, over HTTP/1.1 and HTTP/2. Reads are free of side
 * effects, so that Connect serves them by GET too.
 *
 * Errors are the protocol's own; in their details is an ErrorResponse with the
 * ErrorCode. The headers with a caller's own provider keys are those of
 * Agentd.Run; CreateTurn, WatchTurn, SubmitToolResults and CancelToolCall take
 * them.
 *
 * @generated from service agentd.v1.SessionService
 */
export const SessionService = /*@__PURE__*/ serviceDesc(file_agentd_v1_sessions, 0);
//# sourceMappingURL=sessions_pb.js.map