// Multiplications by cuBLASLt, planned once for each kind of call. y [T, N] row by row is D [N, T]
// column by column, and D = op(W) x with W's rows as columns: the multiplication that the library
// does best.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "ops/linear/library/cublaslt.h"
#include "tensor/dtype.h"

namespace atom::ops {

enum class GemmScales : uint8_t {
  kNone,
  kScalars,  // one of x, one of the weight
  kVectors,  // one for each row of x, one for each row of the weight
  // Of groups of 128 of k: of x [groups, rows rounded up to kGemmScaleRows], of blocks of 128 rows
  // of the weight [blocks, groups], of which there are a multiple of kGemmScaleRows.
  kBlocks,
};

// What a plan depends on: everything but addresses. Strides are in elements.
struct GemmKey {
  int64_t num_rows = 0;
  int64_t out_features = 0;
  int64_t in_features = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  DType dtype = DType::kBFloat16;  // of x and the weight
  DType y_dtype = DType::kBFloat16;
  GemmScales scales = GemmScales::kNone;
  bool has_bias = false;  // in y_dtype
  // FP8: sums stay in the tensor cores' own precision (about 14 bits) for all of K, instead of
  // being added up in float32 every 128 of it.
  bool fast_accumulation = false;
  // Every sum is added up by one thread block, in an order that follows from in_features: calls
  // that differ in num_rows, or in strides, have one algorithm, or others with the same bits.
  bool fixed_order = false;

  bool operator==(const GemmKey&) const = default;
};

struct GemmKeyHash {
  size_t operator()(const GemmKey& key) const;
};

// Addresses on the device, multiples of kGemmAlignment.
struct GemmOperands {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
  const float* x_scales = nullptr;
  const float* weight_scales = nullptr;
};

// One way to multiply: an algorithm of the library, or the kernel of ordered/ordered_sm90.h, or
// where it is not supported that of ordered/ordered_cuda.h.
struct GemmAlgorithm {
  bool is_ordered = false;
  cublasLtMatmulAlgo_t library = {};
};

constexpr int64_t kGemmScaleRows = 4;
constexpr int64_t kGemmAlignment = 16;          // bytes, of every row and matrix
constexpr int64_t kGemmScratchSize = 32 << 20;  // bytes: what NVIDIA recommends for Hopper
constexpr int64_t kGemmScratchAlignment = 256;  // bytes

// Calls of one kind, of different weights.
struct NotedCalls {
  GemmKey key;
  void* scratch = nullptr;
  std::vector<GemmOperands> operands;
};

// The library's handle of a card and the plans made so far. For all threads, but a rank never waits
// here for another: what one has enqueued may wait on its card for what the other enqueues next.
class GemmPlans {
 public:
  // The plans of the calling thread's card. cublaslt() is there.
  static GemmPlans& current();

  // Whether the library has an algorithm for such calls.
  bool supports(const GemmKey& key);

  // On a queue (cudaStream_t). `scratch` [kGemmScratchSize] bytes on the device, aligned.
  void multiply(const GemmKey& key, const GemmOperands& operands, void* scratch, void* queue);

  // Between the two, multiply() notes the calls of kinds that nothing was chosen for: of each kind
  // a few that read different weights.
  void start_noting();
  std::vector<NotedCalls> stop_noting();

  // Up to `max_count` algorithms for such calls, the library's own choice first. With a fixed order
  // that of all such calls is first; others may order sums in another way.
  std::vector<GemmAlgorithm> candidates(const GemmKey& key, int max_count);
  // Multiplies by one of them; false when it cannot run.
  bool try_algorithm(const GemmKey& key,
                     const GemmAlgorithm& algorithm,
                     const GemmOperands& operands,
                     void* scratch,
                     void* queue);
  // Calls of this kind use it from now on, as long as the program runs, or what another card chose
  // first: cards are alike, and what several ranks compute they compute in one way.
  void choose(const GemmKey& key, const GemmAlgorithm& algorithm);
  // What another card chose, which calls use from now on; none where none did.
  std::optional<GemmAlgorithm> follow_other_card(const GemmKey& key);

  // Whether the kernel of ordered/ordered_sm90.h can have a call.
  static bool fits_ordered(const GemmKey& key, const GemmOperands& operands);
  // Calls of this kind but for their rows, with a fixed order, leave few rows to it from now on:
  // it gives the library's bits.
  void admit_ordered(const GemmKey& key);
  bool admits_ordered(const GemmKey& key);

 private:
  class Plan;

  explicit GemmPlans(const CublasLt& lt);
  Plan& plan_of(const GemmKey& key) REQUIRES(mutex_);
  void use(const GemmKey& key, const GemmAlgorithm& algorithm);
  void note(const GemmKey& key, const GemmOperands& operands, void* scratch) REQUIRES(mutex_);

  const CublasLt& lt_;
  cublasLtHandle_t handle_ = nullptr;
  Mutex mutex_;
  std::unordered_map<GemmKey, std::unique_ptr<Plan>, GemmKeyHash> plans_ GUARDED_BY(mutex_);
  std::unordered_map<GemmKey, GemmAlgorithm, GemmKeyHash> chosen_ GUARDED_BY(mutex_);
  // As representatives.
  std::unordered_set<GemmKey, GemmKeyHash> with_ordered_ GUARDED_BY(mutex_);
  bool is_noting_ GUARDED_BY(mutex_) = false;
  std::vector<NotedCalls> noted_ GUARDED_BY(mutex_);
};

}  // namespace atom::ops
