// POST /start_profile, /stop_profile: there with --profile-dir only. What a body says is not read:
// clients of vLLM send a completion request along.
#include <fmt/format.h>

#include <utility>

#include "server/endpoint.h"
#include "server/json_text.h"

namespace atom::server {
namespace {

std::string answer_json(const ProfileFile& file) {
  if (file.path.empty()) return "{\"status\":\"started\"}";
  std::string body = "{\"status\":\"stopped\",\"file\":";
  append_json_string(&body, file.path);
  body +=
      fmt::format(",\"spans\":{},\"dropped_spans\":{}}}", file.num_spans, file.num_dropped_spans);
  return body;
}

ProfileCallback answer_to(const ExchangePtr& exchange) {
  return [exchange](const Result<ProfileFile>& file) {
    if (!file.ok()) return respond_error(exchange, file.status());
    respond_json(exchange, answer_json(*file));
  };
}

}  // namespace

void start_profile(ServerContext* context, const ExchangePtr& exchange) {
  const Status status = context->engine.start_profile(answer_to(exchange));
  if (!status.ok()) respond_error(exchange, status);
}

void stop_profile(ServerContext* context, const ExchangePtr& exchange) {
  const Status status = context->engine.stop_profile(answer_to(exchange));
  if (!status.ok()) respond_error(exchange, status);
}

}  // namespace atom::server
