#include "bench_serve/load_generator.h"

#include <sys/resource.h>

#include "base/check.h"
#include "bench_serve/load_loop.h"

namespace atom::bench_serve {
namespace {

// Every request may need a connection of its own.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<LoadResult> run_load(const Connector& connector,
                            std::span<const PreparedRequest> requests,
                            std::span<const double> schedule,
                            const LoadOptions& options) {
  CHECK(requests.size() == schedule.size());
  raise_file_limit();
  return LoadLoop(connector, requests, schedule, options).run();
}

}  // namespace atom::bench_serve
