#include "engine/copy_thread.h"

#include <fmt/format.h>

namespace atom {

EngineCoreEndpoints copy_endpoints(int copy, std::chrono::milliseconds heartbeat) {
  return {fmt::format("inproc://atom-copy-{}-requests", copy),
          fmt::format("inproc://atom-copy-{}-responses", copy),
          fmt::format("copy-{}", copy),
          heartbeat};
}

void serve_copy(const ResolvedConfig& config,
                int64_t num_sampled_ids,
                zmq::context_t& context,
                const EngineCoreEndpoints& endpoints,
                const CopyPlace& place) {
  EngineCore::serve(config, num_sampled_ids, context, endpoints, &place);
  if (place.lockstep == nullptr) return;
  place.lockstep->fail(unavailable("copy {} of the engine has ended", place.copy));
}

}  // namespace atom
