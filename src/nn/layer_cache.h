// What layers keep between steps: in paged caches a row for each token, in states a value for each
// sequence. While it is built a layer says what it needs and gets a handle
// (BuildContext::add_cache, add_state); the runner plans and allocates for all layers together, and
// ForwardContext has the tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace atom {

// One tensor of a layer's cache: [num_blocks, block_size, per_token...].
struct CachePlane {
  const char* name;  // "k", "v", "latent", ...
  Shape per_token;
  DType dtype;
  int32_t group = 0;  // of layers that share blocks, see SchedulerConfig::num_kv_groups

  int64_t bytes_per_token() const { return per_token.num_elements() * dtype_size(dtype); }
  // Planes of different groups, no block of which is the other's, can lie in one tensor.
  bool can_share(const CachePlane& other) const {
    return group != other.group && dtype == other.dtype && per_token == other.per_token;
  }
};

struct LayerCache {
  std::vector<CachePlane> planes;
  int64_t sliding_window = 0;  // tokens that queries see; 0: all before them
};

// One tensor of a layer's state: [num_slots, per_slot...]. A slot's content is unspecified until a
// sequence that has it writes it.
struct StatePlane {
  const char* name;  // "conv", "recurrent", ...
  Shape per_slot;
  DType dtype;

  int64_t bytes_per_slot() const { return per_slot.num_elements() * dtype_size(dtype); }
};

struct LayerState {
  std::vector<StatePlane> planes;
};

// A layer's planes among those of all layers.
struct CacheHandle {
  size_t first = 0;
  size_t num_planes = 0;
  int32_t group = 0;
};
struct StateHandle {
  size_t first = 0;
  size_t num_planes = 0;
};

// The planes of all layers of a model, in the order in which they were asked for.
struct StorageSpec {
  std::vector<CachePlane> caches;
  std::vector<StatePlane> states;

  // Sums over all layers.
  int64_t bytes_per_token() const {
    int64_t bytes = 0;
    for (const CachePlane& plane : caches) bytes += plane.bytes_per_token();
    return bytes;
  }
  // By plane: the first of those with which it shares a tensor, one of each group at most.
  std::vector<size_t> homes() const;
  // What one group's layers take in a block of the pool, which is as large as the largest needs it.
  int64_t pool_bytes_per_token() const;
  int64_t bytes_per_slot() const {
    int64_t bytes = 0;
    for (const StatePlane& plane : states) bytes += plane.bytes_per_slot();
    return bytes;
  }
  bool has_states() const { return !states.empty(); }
};

// Their tensors.
struct LayerStorage {
  std::vector<Tensor> caches;  // [num_blocks, block_size, per_token...] each
  std::vector<Tensor> states;  // [num_slots, per_slot...] each

  std::span<const Tensor> cache(CacheHandle handle) const {
    return std::span(caches).subspan(handle.first, handle.num_planes);
  }
  std::span<const Tensor> state(StateHandle handle) const {
    return std::span(states).subspan(handle.first, handle.num_planes);
  }
};

}  // namespace atom
