#include "cli/follow_head.h"

#include <poll.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "base/env.h"
#include "cli/fetch_checkpoint.h"
#include "cli/interrupts.h"
#include "cli/report.h"
#include "cli/start_engine.h"
#include "engine/node_follower.h"

namespace atom::cli {
namespace {

constexpr int kInterruptPoll = 100;  // milliseconds

Result<std::unique_ptr<NodeFollower>> make_follower(EngineConfig* config) {
  // What a node waits for and how it fares is all it has to say.
  if (config->log_level.empty() && env().log_level.empty()) config->log_level = "info";
  RETURN_IF_ERROR(apply_log_flags(*config));
  const bool needs_weights = config->model.load_dummy == DummyWeights::kNone;
  RETURN_IF_ERROR(fetch_checkpoint(
      needs_weights ? hub::FileSet::kAll : hub::FileSet::kWithoutWeights, &config->model));
  return NodeFollower::create(*config);
}

}  // namespace

int follow_head(EngineConfig config) {
  Interrupts interrupts{SIGINT, SIGTERM};
  Result<std::unique_ptr<NodeFollower>> follower = [&] {
    const LetInterruptsThrough guard{SIGINT, SIGTERM};
    return make_follower(&config);
  }();
  if (!follower.ok()) return fail(follower.status());
  Status status;
  std::atomic<bool> is_over{false};
  bool stopping = false;
  std::thread worker([&] {
    status = (*follower)->run();
    is_over = true;
  });
  while (!is_over) {
    pollfd descriptor = {interrupts.fd(), POLLIN, 0};
    if (::poll(&descriptor, 1, kInterruptPoll) <= 0 || !interrupts.take()) continue;
    if (std::exchange(stopping, true)) std::_Exit(kExitError);
    (*follower)->stop();
  }
  worker.join();
  return status.ok() ? kExitOk : fail(status);
}

}  // namespace atom::cli
