// GET /metrics
#include <utility>

#include "server/endpoint.h"

namespace atom::server {
namespace {

void metrics(ServerContext* context, const ExchangePtr& exchange) {
  const EngineHealth health = context->engine.health();
  EngineSample sample;
  sample.up = health.state == EngineState::kReady;
  sample.num_restarts = health.num_restarts;
  sample.num_unresponsive = health.num_unresponsive;
  sample.core = context->engine.stats();
  sample.num_http_connections = context->num_connections();
  HttpResponse response;
  response.content_type = kExpositionContentType;
  response.body = context->metrics.render(sample);
  exchange->respond(std::move(response));
}

}  // namespace

constinit const Endpoint kMetrics{
    metrics,
    {.id = "get_metrics", .summary = "Measurements for Prometheus.", .content_type = "text/plain"}};

}  // namespace atom::server
