// The ranks of an engine that are threads of one process, on the CPU or with a card each, and their
// groups: consecutive ranks share each layer, ranks of the same part of it share the tokens of
// prompts, and the ranks of the same number in each stage are a pipeline. Copies of the model that
// share their experts are there together, one's ranks behind the other's, and the ranks of the same
// stage of all of them have the experts. All fail together.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "config/engine_config.h"
#include "nn/parallel_context.h"

namespace atom {

class LocalRanks {
 public:
  // `first`: the device of the first rank; where it is a card the others have those behind it.
  // `timeout`: what an operation waits for other ranks at most. An error where there is no way
  // between the cards.
  static Result<std::unique_ptr<LocalRanks>> create(const ParallelConfig& parallel,
                                                    Device first,
                                                    std::chrono::milliseconds timeout,
                                                    bool share_experts = false);
  virtual ~LocalRanks() = default;

  int size() const { return static_cast<int>(ranks_.size()); }
  // Copies that are here together; 1: only one is.
  int num_copies() const { return num_copies_; }
  // Over which a copy's steps come to its other nodes, of which the first is the one that schedules
  // them; null where no copy is on several.
  Communicator* steps() const { return steps_; }
  // What rank `rank` builds and computes with, as long as this lives.
  const ParallelContext& context(int rank) const { return ranks_[rank]; }

  // Why they cannot go on together: the first reason. From any thread.
  Status status();
  // Ends all operations of all ranks. From any thread.
  void fail(const Status& reason);

 protected:
  LocalRanks() = default;

  // Of ranks of this process, on the CPU or on the cards that they name.
  static Result<std::vector<std::unique_ptr<Communicator>>> make_group(
      const std::vector<ParallelContext*>& members,
      DeviceType type,
      std::chrono::milliseconds timeout);
  // Of those that do the same as `group` says.
  Status make_groups(Communicator* ParallelContext::*group,
                     Device first,
                     std::chrono::milliseconds timeout);

  std::vector<std::unique_ptr<Communicator>> communicators_;  // none for one rank
  std::vector<ParallelContext> ranks_;
  int num_copies_ = 1;
  Communicator* steps_ = nullptr;
};

// Rank `rank` of those that `parallel` asks for, without communicators: for plans.
ParallelContext parallel_context(const ParallelConfig& parallel,
                                 int rank,
                                 bool share_experts = false);

}  // namespace atom
