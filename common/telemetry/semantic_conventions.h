// Names of attributes by OpenTelemetry's semantic conventions. Those for generative AI are not stable yet:
// they are written here and nowhere else. What they have no name for begins with "baton.".
#pragma once

namespace baton::telemetry::names {

// Resource: who says it.
inline constexpr char kServiceName[] = "service.name";
inline constexpr char kServiceVersion[] = "service.version";
inline constexpr char kServiceInstance[] = "service.instance.id";

// RPC.
inline constexpr char kRpcSystem[] = "rpc.system";
inline constexpr char kRpcService[] = "rpc.service";
inline constexpr char kRpcMethod[] = "rpc.method";
inline constexpr char kRpcStatus[] = "rpc.grpc.status_code";
inline constexpr char kErrorType[] = "error.type";

// Generative AI.
inline constexpr char kOperation[] = "gen_ai.operation.name";
inline constexpr char kProvider[] = "gen_ai.provider.name";
inline constexpr char kRequestModel[] = "gen_ai.request.model";
inline constexpr char kMaxTokens[] = "gen_ai.request.max_tokens";
inline constexpr char kChoices[] = "gen_ai.request.choice.count";
inline constexpr char kResponseId[] = "gen_ai.response.id";
inline constexpr char kFinishReasons[] = "gen_ai.response.finish_reasons";
inline constexpr char kInputTokens[] = "gen_ai.usage.input_tokens";
inline constexpr char kOutputTokens[] = "gen_ai.usage.output_tokens";
inline constexpr char kCachedTokens[] = "gen_ai.usage.cache_read.input_tokens";
inline constexpr char kThinkingTokens[] = "gen_ai.usage.reasoning.output_tokens";

// Ours.
inline constexpr char kChoice[] = "baton.choice";
inline constexpr char kAttempt[] = "baton.attempt";
inline constexpr char kWorker[] = "baton.worker";
inline constexpr char kRequestId[] = "baton.request_id";
inline constexpr char kClientRequestId[] = "baton.client_request_id";  // the client's own name for it
inline constexpr char kBuild[] = "baton.build";
inline constexpr char kTokens[] = "baton.tokens";
inline constexpr char kBlocks[] = "baton.blocks";
inline constexpr char kBytes[] = "baton.bytes";
inline constexpr char kLink[] = "baton.link";
inline constexpr char kFailovers[] = "baton.failovers";
inline constexpr char kPreemptions[] = "baton.preemptions";
inline constexpr char kMigrations[] = "baton.migrations";

}  // namespace baton::telemetry::names
