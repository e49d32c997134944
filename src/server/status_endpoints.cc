// GET /livez, /readyz (also as /health), /version, /metrics, /openapi.json
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

constexpr int kRetryAfter = 1;  // seconds
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
  error.retry_after = kRetryAfter;
  respond_error(exchange, error);
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
