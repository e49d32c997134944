// One weight of a layer: its shape, the part of it this rank holds, and how a checkpoint's tensors
// are placed into it. A packed parameter is filled by several tensors, its slices, stacked along
// dimension 0: qkv_proj = rows [q | k | v], gate_up_proj = rows [gate | up].
//
// Life: constructed without memory, allocate(), load() once per slice, const afterwards. load() of
// different slices may run on several threads at once; everything else on one.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// Which of `world` equal parts of a dimension this rank holds.
struct ShardPart {
  int rank = 0;
  int world = 1;
};

struct ParameterSlice {
  std::string id;    // "q", "k", "v", "gate", "up", ...
  int64_t rows = 0;  // of the checkpoint's tensor, all ranks together; a multiple of part.world
  ShardPart part;    // per slice: K and V heads may be split among fewer ranks than Q heads
};

class Parameter {
 public:
  // The same on every rank.
  Parameter(DType dtype, const Shape& full_shape);
  // Each rank holds one part of dimension `shard_dim`.
  Parameter(DType dtype, const Shape& full_shape, int shard_dim, ShardPart part);
  // Packed along dimension 0; `row_shape` is what follows it: {in_features} for a weight, {} for a
  // bias.
  Parameter(DType dtype, std::vector<ParameterSlice> slices, const Shape& row_shape);

  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // float32 only: a checkpoint need not have it, every element is `value` then.
  void set_default(float value);

  DType dtype() const { return dtype_; }
  const Shape& full_shape() const { return full_shape_; }  // of all ranks together
  const Shape& shape() const { return data_.shape(); }     // of this rank's part
  int64_t num_bytes() const { return data_.num_bytes(); }  // of this rank's part
  const Tensor& data() const { return data_; }             // meta until allocate()

  void allocate();  // on the CPU
  // On the stream's device.
  void allocate(const Stream& stream);
  // A layer that repacks the weight keeps its own copy and gives this one back: data() is meta
  // again.
  void release();

  // Copies a checkpoint's whole tensor (float32, float16 or bfloat16 convert into each other) into
  // slice `slice_id`; empty for a parameter that is not packed. An error when the slice is unknown
  // or was loaded before, or the shape or dtype is wrong.
  Status load(const Tensor& source, std::string_view slice_id = {});

  // The two halves of load(), for loaders that check everything before they copy in pieces.
  // claim() checks and marks the slice loaded, and returns its index.
  Result<int> claim(const Shape& source_shape, DType source_dtype, std::string_view slice_id);
  // The part of `source` this rank keeps and where it goes: equal shapes.
  struct Placement {
    Tensor source;
    Tensor target;
  };
  Placement place(const Tensor& source, int slice) const;

  bool is_loaded() const { return missing_slices().empty(); }
  // Ids of slices not loaded yet; {""} for an unpacked parameter that is not loaded. None when
  // there is a default.
  std::vector<std::string> missing_slices() const;
  // For values that come from elsewhere than a checkpoint.
  void mark_loaded();

 private:
  struct Slice {
    std::string id;
    Shape source_shape;
    int shard_dim = -1;  // -1: not split
    ShardPart part;
    int64_t target_begin = 0;  // along dimension 0 of data_
    int64_t target_rows = 0;
    std::atomic<bool> claimed{false};
  };

  Slice& add_slice();

  DType dtype_;
  Shape full_shape_;
  std::vector<std::unique_ptr<Slice>> slices_;
  std::optional<float> default_;
  Tensor data_;
};

}  // namespace atom
