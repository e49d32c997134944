// Moves the experts of a rank's layers while serving (--enable-eplb), so that the ranks that share
// them have about as much to do: every so many steps they add up how many tokens chose each expert,
// and all of them find the same better places. Experts travel between steps, those of one layer
// after each, so that no request waits long. What a model computes stays the same but for the order
// in which ranks' sums are added.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "config/eplb_config.h"
#include "layers/moe/expert_placement.h"
#include "layers/moe/fused_moe.h"
#include "nn/parallel_context.h"

namespace atom {

class ExpertBalancer {
 public:
  // Figures of this rank, which only grow.
  struct Figures {
    uint64_t num_tokens = 0;          // of its experts in all windows, all layers together
    uint64_t num_largest_tokens = 0;  // of the rank that had most of them, likewise
    uint64_t num_moves = 0;           // experts that came to one of its slots
  };

  // `layers` are loaded on `stream` and have slots; they and the communicators of `parallel`
  // outlive this. A collective of the ranks that share the experts, as is end_step(). Hosts meet in
  // it.
  ExpertBalancer(const EplbConfig& config,
                 const ParallelContext& parallel,
                 std::vector<FusedMoE*> layers,
                 const Stream& stream);

  // What it takes of a device.
  static int64_t num_bytes(const std::vector<FusedMoE*>& layers);

  // Behind each step, also one that had no token that counts: all ranks have as many. Hosts meet
  // only where a window ends.
  void end_step(const Stream& stream);

  // From any thread.
  Figures figures() const;

 private:
  struct Change {
    FusedMoE* layer;
    ExpertPlacement placement;
  };

  // The scales that activations of experts have become those of all ranks' experts.
  void share_scales(const Stream& stream) const;
  // Counts from now on if it begins.
  void start_window();
  // Which changes the tokens of the last window suggest.
  void plan(const Stream& stream);
  void note(const std::vector<int64_t>& counts, const ExpertPlacement& placement);
  void carry_out(const Change& change, const Stream& stream);
  void carry_out(const ExpertMove& move, const FusedMoE& layer, const Stream& stream);
  // Where an expert of the layer is put aside: as slot_tensors() has it.
  std::vector<Tensor> aside_of(const FusedMoE& layer) const;

  const EplbConfig config_;
  const int rank_;
  Communicator* const group_;
  const std::vector<FusedMoE*> layers_;
  int64_t num_steps_ = 0;      // since the last plan
  Tensor counts_;              // of all layers' experts, on the host; others read it
  std::vector<Tensor> aside_;  // bytes for an expert of any layer
  std::deque<Change> pending_;
  std::atomic<uint64_t> num_tokens_{0};
  std::atomic<uint64_t> num_largest_tokens_{0};
  std::atomic<uint64_t> num_moves_{0};
};

}  // namespace atom
