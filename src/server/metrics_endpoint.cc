// GET /metrics
#include <utility>

#include "server/endpoint.h"

namespace atom::server {

void metrics(ServerContext* context, const ExchangePtr& exchange) {
  const CoreStats stats = context->engine.stats();
  const EngineHealth health = context->engine.health();
  EngineSample sample;
  sample.up = health.state == EngineState::kReady;
  sample.num_restarts = health.num_restarts;
  sample.num_unresponsive = health.num_unresponsive;
  sample.num_steps = stats.num_steps;
  sample.num_running = stats.num_running;
  sample.num_waiting = stats.num_waiting;
  sample.num_free_blocks = stats.num_free_blocks;
  sample.num_blocks = stats.num_blocks;
  sample.num_preemptions = stats.num_preemptions;
  sample.prefix_cache_queries = stats.prefix_cache_queries;
  sample.prefix_cache_hits = stats.prefix_cache_hits;
  sample.execute_ns = stats.execute_ns;
  sample.device_wait_ns = stats.device_wait_ns;
  sample.num_device_allocations = stats.num_device_allocations;
  sample.num_http_connections = context->num_connections();
  HttpResponse response;
  response.content_type = kExpositionContentType;
  response.body = context->metrics.render(sample);
  exchange->respond(std::move(response));
}

}  // namespace atom::server
