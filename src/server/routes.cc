#include "server/routes.h"

namespace atom::server {

std::span<const Route> routes() {
  static constexpr Route kRoutes[] = {
      {"POST", "/v1/completions", RunsOn::kGeneration, true, &kCompletions},
      {"POST", "/v1/chat/completions", RunsOn::kGeneration, true, &kChatCompletions},
      {"POST", "/v1/chat/completions/render", RunsOn::kWorker, true, &kRenderChat},
      {"POST", "/v1/responses", RunsOn::kGeneration, true, &kResponses},
      {"POST", "/v1/messages", RunsOn::kGeneration, true, &kMessages},
      {"POST", "/v1/messages/count_tokens", RunsOn::kWorker, true, &kCountTokens},
      {"GET", "/v1/models", RunsOn::kIoThread, true, &kListModels},
      {"GET", "/v1/models/{model}", RunsOn::kIoThread, true, &kRetrieveModel},
      {"POST", "/tokenize", RunsOn::kWorker, true, &kTokenize},
      {"POST", "/detokenize", RunsOn::kWorker, true, &kDetokenize},
      {"GET", "/tokenizer_info", RunsOn::kWorker, true, &kTokenizerInfo},
      {"POST", "/reset_prefix_cache", RunsOn::kIoThread, true, &kResetPrefixCache},
      {"POST",
       "/start_profile",
       RunsOn::kIoThread,
       true,
       &kStartProfile,
       true,
       KeyScope::kProfiling},
      {"POST", "/stop_profile", RunsOn::kIoThread, true, &kStopProfile, true, KeyScope::kProfiling},
      {"GET", "/livez", RunsOn::kIoThread, false, &kLivez},
      {"GET", "/readyz", RunsOn::kIoThread, false, &kReadyz},
      {"GET", "/health", RunsOn::kIoThread, false, &kHealth},
      {"GET", "/ping", RunsOn::kIoThread, false, &kPing},
      {"POST", "/ping", RunsOn::kIoThread, false, &kPingPost},
      {"GET", "/load", RunsOn::kIoThread, false, &kLoad},
      {"GET", "/version", RunsOn::kIoThread, false, &kVersion},
      {"GET", "/metrics", RunsOn::kStatus, false, &kMetrics, false, KeyScope::kMetrics},
      {"GET", "/openapi.json", RunsOn::kIoThread, false, &kOpenApi},
  };
  return kRoutes;
}

bool exists(const Route& route, const EngineConfig& config) {
  return !route.profiles || !config.profile_dir.empty();
}

std::string openapi_document(const OpenApiOptions& options, const EngineConfig& config) {
  std::vector<ApiRoute> described;
  for (const Route& route : routes()) {
    if (!exists(route, config)) continue;
    described.push_back({route.method, route.path, &route.endpoint->operation});
  }
  return openapi_json(options, described);
}

}  // namespace atom::server
