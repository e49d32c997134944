// What a node does that is not the head: it joins the head, loads its ranks' part of the model, and
// computes the steps that the first node of its copy sends, or serves the copies that it is the
// first node of, until the head ends. When the head or another node is lost it joins again, so that
// the engine recovers once all are there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "config/resolve.h"
#include "engine/runner_group.h"

namespace atom {

class NodeFollower {
 public:
  static Result<std::unique_ptr<NodeFollower>> create(const EngineConfig& config);

  // Returns when the head has ended, or stop() was called; or with what another try would not mend:
  // a configuration, a checkpoint or a secret that is not the head's.
  Status run();
  // From any thread; run() returns soon.
  void stop();

 private:
  NodeFollower(ResolvedConfig config, int64_t num_sampled_ids);

  // From joining the head to the end of that group. `joined`: it got so far.
  Status run_once(bool* joined);
  // With the other nodes; `joined`: as of run_once().
  Status compute(const std::shared_ptr<NodeRanks>& ranks, bool* joined);
  void publish(std::shared_ptr<NodeRanks> ranks);
  Status has_stopped() const;

  const ResolvedConfig config_;
  const int64_t num_sampled_ids_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::shared_ptr<NodeRanks> ranks_ GUARDED_BY(mutex_);  // that stop() ends
};

}  // namespace atom
