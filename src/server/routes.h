// The table of routes: method, path, where it runs, whether it needs a key. router.cc applies it.
#pragma once

#include <span>
#include <string_view>

#include "server/endpoint.h"

namespace atom::server {

enum class RunsOn {
  kIoThread,    // microseconds, and must answer when everything else is busy
  kWorker,      // parses or tokenises
  kGeneration,  // a worker, and needs the engine
};

struct Route {
  const char* method;
  const char* path;  // "/v1/models/{model}": the last segment is anything
  RunsOn runs_on;
  bool needs_key;
  Endpoint endpoint;
  bool profiles = false;  // exists only where profiles can be made
};

// All there may be; exists() says which there are.
std::span<const Route> routes();
bool exists(const Route& route, const ServerContext& context);

}  // namespace atom::server
