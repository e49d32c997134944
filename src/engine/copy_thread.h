// A copy of those that are one core together, on a thread of the process that has its ranks.
#pragma once

#include <chrono>
#include <zmq.hpp>

#include "engine/core_endpoints.h"
#include "engine/engine_core.h"

namespace atom {

// Where copy `copy` of a process is spoken to.
EngineCoreEndpoints copy_endpoints(int copy, std::chrono::milliseconds heartbeat);

// As EngineCore::serve(); where the copy has failed the others do not wait for it.
void serve_copy(const ResolvedConfig& config,
                int64_t num_sampled_ids,
                zmq::context_t& context,
                const EngineCoreEndpoints& endpoints,
                const CopyPlace& place);

}  // namespace atom
