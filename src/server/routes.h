// The table of routes: method, path, where it runs, whether it needs a key, and its endpoint.
// router.cc applies it, and the OpenAPI document is made of it.
#pragma once

#include <span>
#include <string>

#include "config/engine_config.h"
#include "server/endpoint.h"

namespace atom::server {

enum class RunsOn {
  kIoThread,    // microseconds, and must answer when everything else is busy
  kStatus,      // a thread that no client's work can hold
  kWorker,      // parses or tokenizes
  kGeneration,  // a worker, and needs the engine
};

struct Route {
  const char* method;
  const char* path;  // "/v1/models/{model}": the last segment is anything
  RunsOn runs_on;
  bool needs_key;
  const Endpoint* endpoint;
  bool profiles = false;                  // exists only where profiles can be made
  KeyScope scope = KeyScope::kInference;  // that a key must have
};

// All there may be; exists() says which there are.
std::span<const Route> routes();
bool exists(const Route& route, const EngineConfig& config);
// Describes the routes there are.
std::string openapi_document(const OpenApiOptions& options, const EngineConfig& config);

}  // namespace atom::server
