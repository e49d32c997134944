#include "server/routes.h"

namespace atom::server {

std::span<const Route> routes() {
  static constexpr Route kRoutes[] = {
      {"POST", "/v1/completions", RunsOn::kGeneration, true, completions},
      {"POST", "/v1/chat/completions", RunsOn::kGeneration, true, chat_completions},
      {"GET", "/v1/models", RunsOn::kIoThread, true, list_models},
      {"GET", "/v1/models/{model}", RunsOn::kIoThread, true, retrieve_model},
      {"POST", "/tokenize", RunsOn::kWorker, true, tokenize},
      {"POST", "/detokenize", RunsOn::kWorker, true, detokenize},
      {"POST", "/start_profile", RunsOn::kIoThread, true, start_profile, true},
      {"POST", "/stop_profile", RunsOn::kIoThread, true, stop_profile, true},
      {"GET", "/livez", RunsOn::kIoThread, false, livez},
      {"GET", "/readyz", RunsOn::kIoThread, false, readyz},
      {"GET", "/health", RunsOn::kIoThread, false, readyz},
      {"GET", "/version", RunsOn::kIoThread, false, version},
      {"GET", "/metrics", RunsOn::kWorker, false, metrics},
      {"GET", "/openapi.json", RunsOn::kIoThread, false, openapi},
  };
  return kRoutes;
}

bool exists(const Route& route, const ServerContext& context) {
  return !route.profiles || !context.engine.config().engine.profile_dir.empty();
}

}  // namespace atom::server
