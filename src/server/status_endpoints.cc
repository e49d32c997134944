// GET /livez, /readyz (also as /health and /ping), /load, /version, /openapi.json,
// POST /reset_prefix_cache
#include <chrono>
#include <utility>

#include "server/endpoint.h"
#include "server/json_text.h"

namespace atom::server {
namespace {

constexpr std::string_view kVersionSchema = R"json(
"Version": {
  "type": "object",
  "required": ["version"],
  "properties": {"version": {"type": "string"}}
}
)json";

constexpr std::string_view kLoadSchema = R"json(
"Load": {
  "type": "object",
  "required": ["server_load"],
  "properties": {"server_load": {"type": "integer", "minimum": 0}}
}
)json";
constexpr std::string_view kResetSchema = R"json(
"CacheReset": {
  "type": "object",
  "required": ["status"],
  "properties": {"status": {"const": "reset"}}
}
)json";

constexpr int kRetryAfterNotReady = 1;  // seconds
// Without one of them coming to an end while others wait.
constexpr std::chrono::seconds kMaxWorkersStuck{5};

// Why no requests should come; empty when they may.
ApiError why_not_ready(const ServerContext& context) {
  ApiError error;
  const EngineHealth health = context.engine.health();
  if (context.draining) {
    error.code = "draining";
    error.message = "the server is shutting down";
  } else if (health.state != EngineState::kReady) {
    error.code = engine_state_name(health.state);
    error.message = health.reason;
  } else if (context.workers.stuck_for() > kMaxWorkersStuck) {
    error.code = "workers_stuck";
    error.message = "the threads that prepare requests make no progress";
  }
  return error;
}

// This process answers: whether the engine does is /readyz.
void livez(ServerContext*, const ExchangePtr& exchange) {
  respond_json(exchange, "{\"status\":\"alive\"}");
}

void readyz(ServerContext* context, const ExchangePtr& exchange) {
  ApiError error = why_not_ready(*context);
  if (error.code.empty()) return respond_json(exchange, "{\"status\":\"ready\"}");
  error.http_status = 503;
  error.type = "service_unavailable";
  error.retry_after = kRetryAfterNotReady;
  respond_error(exchange, error);
}

// Answers that are being made, as vLLM names it.
void load(ServerContext* context, const ExchangePtr& exchange) {
  std::string body = "{\"server_load\":";
  append_json_integer(&body, context->admission.current());
  body.push_back('}');
  respond_json(exchange, std::move(body));
}

void reset_prefix_cache(ServerContext* context, const ExchangePtr& exchange) {
  context->engine.reset_prefix_cache();
  respond_json(exchange, "{\"status\":\"reset\"}");
}

void version(ServerContext*, const ExchangePtr& exchange) {
  respond_json(exchange, "{\"version\":\"" ATOM_VERSION "\"}");
}

void openapi(ServerContext* context, const ExchangePtr& exchange) {
  respond_json(exchange, context->openapi_document);
}

}  // namespace

constinit const Endpoint kLivez{livez,
                                {.id = "get_liveness", .summary = "200 while the process lives."}};
constinit const Endpoint kReadyz{
    readyz, {.id = "get_readiness", .summary = "200 while requests are taken."}};
constinit const Endpoint kHealth{readyz,
                                 {.id = "get_health", .summary = "200 while the engine works."}};
constinit const Endpoint kPing{readyz, {.id = "ping", .summary = "As /health."}};
constinit const Endpoint kPingPost{readyz, {.id = "post_ping", .summary = "As /health."}};
constinit const Endpoint kLoad{load,
                               {.id = "get_load",
                                .summary = "Sequences that run or wait.",
                                .answer = "Load",
                                .answer_schemas = kLoadSchema}};
constinit const Endpoint kResetPrefixCache{
    reset_prefix_cache,
    {.id = "reset_prefix_cache",
     .summary = "Let later requests share no cached prompt with earlier ones.",
     .answer = "CacheReset",
     .answer_schemas = kResetSchema}};
constinit const Endpoint kVersion{version,
                                  {.id = "get_version",
                                   .summary = "The program's version.",
                                   .answer = "Version",
                                   .answer_schemas = kVersionSchema}};
constinit const Endpoint kOpenApi{openapi,
                                  {.id = "get_openapi",
                                   .summary = "This document.",
                                   .answer = "Document",
                                   .answer_schemas = R"json("Document": {"type": "object"})json"}};

}  // namespace atom::server
