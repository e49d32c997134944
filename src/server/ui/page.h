// The page at /: a chat and charts of /metrics. It talks to this server alone, as any client does;
// without --no-ui it is there, and nothing of it is in the OpenAPI document.
#pragma once

#include <span>

#include "server/routes.h"
#include "server/server_options.h"

namespace atom::server {

// None with --no-ui.
std::span<const Route> page_routes(const ServerOptions& options);

}  // namespace atom::server
