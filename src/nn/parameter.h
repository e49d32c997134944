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

// Makes a parameter's rows from those of a checkpoint while they are loaded: quantisation. Lives as
// long as the parameter.
class RowEncoder {
 public:
  virtual ~RowEncoder() = default;
  // What rows are converted to first.
  virtual DType source_dtype() const = 0;
  // Enqueues the making of rows [first_row, first_row + R). Several threads at once, each with its
  // own stream and rows.
  virtual void encode(const Stream& stream,
                      const Tensor& rows,  // [R, K] source_dtype(), which the device can read
                      int64_t first_row) = 0;
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

  // A few values that finish_load() reads: on the CPU whatever the device.
  void keep_on_host() { on_host_ = true; }
  // No checkpoint has it: it is made while another parameter is loaded.
  void set_computed() { computed_ = true; }
  // On a device: the checkpoint's rows, of any float dtype, are not copied but given to `encoder`.
  void set_encoder(RowEncoder* encoder) { encoder_ = encoder; }

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
    RowEncoder* encoder = nullptr;  // makes rows from `first_row` on of `source`; null: a copy
    int64_t first_row = 0;
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
  bool on_host_ = false;
  bool computed_ = false;
  RowEncoder* encoder_ = nullptr;
  Tensor data_;
};

}  // namespace atom
