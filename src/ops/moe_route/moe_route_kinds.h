// What kinds of routers there are; see moe_route.h.
#pragma once

#include <stdint.h>

namespace atom::ops {

enum class RouterScores {
  kSoftmax,          // over all experts
  kSoftmaxOfChosen,  // over the chosen experts' logits
  kSigmoid,
};

// What a group of experts is chosen by.
enum class GroupScore { kLargest, kTwoLargest /* their sum */ };

struct MoeRouting {
  RouterScores scores = RouterScores::kSoftmax;
  int64_t top_k = 1;
  int64_t num_groups = 1;
  int64_t num_top_groups = 1;  // that may be chosen from
  GroupScore group_score = GroupScore::kLargest;
  bool normalizes = false;  // the chosen experts' weights, to a sum of 1
  float scale = 1.0f;       // of the weights, after that
  // Experts that every token has, as the last ids and with this weight.
  int64_t num_shared = 0;
  float shared_weight = 1.0f;
  // Instead of it: the sigmoid of a logit for each of them, which follow those of the experts.
  bool gates_shared = false;
  // Ranks that all have these experts take turns: token t has them on rank t % shared_world alone,
  // elsewhere its ids are -1.
  int32_t shared_rank = 0;
  int32_t shared_world = 1;

  constexpr bool has_shared(int64_t token) const { return token % shared_world == shared_rank; }
  constexpr int64_t num_gates() const { return gates_shared ? num_shared : 0; }
};

// Of a GPU's registers and shared memory.
constexpr int64_t kMaxRoutedExperts = 1024;
constexpr int64_t kMaxRoutedTopK = 64;
constexpr int64_t kMaxRoutedGroups = 32;

}  // namespace atom::ops
