// POST /start_profile, /stop_profile: there with --profile-dir only. What a body says is not read:
// clients of vLLM send a completion request along.
#include <fmt/format.h>

#include <utility>

#include "server/endpoint.h"
#include "server/json_text.h"

namespace atom::server {
namespace {

constexpr std::string_view kStartedSchema = R"json(
"ProfileStarted": {
  "type": "object",
  "required": ["status"],
  "properties": {"status": {"const": "started"}}
}
)json";
constexpr std::string_view kStoppedSchema = R"json(
"ProfileStopped": {
  "type": "object",
  "required": ["status", "file", "spans", "dropped_spans"],
  "properties": {
    "status": {"const": "stopped"},
    "file": {"type": "string", "description": "The file's path on the server's machine."},
    "spans": {"type": "integer", "minimum": 0},
    "dropped_spans": {
      "type": "integer",
      "minimum": 0,
      "description": "The latest, which came when the profile was full."
    }
  }
}
)json";

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

void start_profile(ServerContext* context, const ExchangePtr& exchange) {
  const Status status = context->engine.start_profile(answer_to(exchange));
  if (!status.ok()) respond_error(exchange, status);
}

void stop_profile(ServerContext* context, const ExchangePtr& exchange) {
  const Status status = context->engine.stop_profile(answer_to(exchange));
  if (!status.ok()) respond_error(exchange, status);
}

}  // namespace

constinit const Endpoint kStartProfile{
    start_profile,
    {.id = "start_profile",
     .summary = "Begin to record a profile of the engine's steps; 400 while one is recorded.",
     .answer = "ProfileStarted",
     .answer_schemas = kStartedSchema}};
constinit const Endpoint kStopProfile{
    stop_profile,
    {.id = "stop_profile",
     .summary =
         "End the profile and write it to a file of --profile-dir; 400 when none is recorded.",
     .answer = "ProfileStopped",
     .answer_schemas = kStoppedSchema}};

}  // namespace atom::server
