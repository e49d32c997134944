// One weight of a layer: its shape, the part of it this rank holds, and how a checkpoint's tensors
// are placed into it. A parameter is filled by slices, one for each tensor of the checkpoint; a
// slice is a list of boxes that are copied from the tensor into the parameter. So qkv_proj is rows
// [q | k | v], a stack of experts is [expert, out, in], and a tensor whose rows interleave heads is
// put in order as it is loaded.
//
// Life: constructed without memory, claim() each slice, allocate(), copy what place() says, const
// afterwards. One thread, except that the copies may run on several.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "nn/parameter_slice.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

// Makes a parameter's rows from those of a checkpoint while they are loaded: quantization. Lives as
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
  Parameter(DType dtype, const Shape& shape);
  // Each rank holds one part of dimension `shard_dim`.
  Parameter(DType dtype, const Shape& full_shape, int shard_dim, ShardPart part);
  // Packed along dimension 0; `row_shape` is what follows it: {in_features} for a weight, {} for a
  // bias.
  Parameter(DType dtype, const std::vector<RowSlice>& slices, const Shape& row_shape);
  // `shape` is this rank's. The boxes of the slices cover it, without overlap.
  Parameter(DType dtype, const Shape& shape, std::vector<ParameterSlice> slices);

  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // Another way in which checkpoints store the whole parameter, with ids of its own: all experts in
  // one tensor. Slices of one way fill it; which one, the first tensor decides that is not of
  // several: a slice of an earlier way's id is that one.
  void add_alternative(std::vector<ParameterSlice> slices);

  // Rows of zeros behind those of the slices, for kernels that take whole groups of rows. Once,
  // after all alternatives.
  void add_rows_of_zeros(int64_t num_rows);

  // float32 only: a checkpoint need not have it, every element is `value` then.
  void set_default(float value);

  // A few values that finish_load() reads: on the CPU whatever the device.
  void keep_on_host() { on_host_ = true; }
  // No checkpoint has it: it is made while another parameter is loaded.
  void set_computed() { computed_ = true; }
  // On a device: the checkpoint's rows, of any float dtype, are not copied but given to `encoder`.
  // For parameters of rank 2 whose boxes are whole rows of them.
  void set_encoder(RowEncoder* encoder) { encoder_ = encoder; }

  DType dtype() const { return dtype_; }
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
  // slice `slice_id`; empty for a parameter that one tensor fills. An error when the slice is
  // unknown or was loaded before, or the shape or dtype is wrong.
  Status load(const Tensor& source, std::string_view slice_id = {});

  // The two halves of load(), for loaders that check everything before they copy in pieces.
  // claim() checks and marks the slice loaded, and returns its index. Dimensions of 1 more or fewer
  // than expected are no difference.
  Result<int> claim(const Shape& source_shape, DType source_dtype, std::string_view slice_id);
  bool is_of_this_rank(int slice) const { return slices_[slice].slice.of_this_rank(); }
  // A part of `source` that this rank keeps and where it goes: equal shapes.
  struct Placement {
    Tensor source;
    Tensor target;
    RowEncoder* encoder = nullptr;  // makes rows from `first_row` on of `source`; null: a copy
    int64_t first_row = 0;
  };
  std::vector<Placement> place(const Tensor& source, int slice) const;

  bool is_loaded() const { return missing_slices().empty(); }
  // Ids of slices not loaded yet, "" of a parameter that one tensor fills. None when there is a
  // default.
  std::vector<std::string> missing_slices() const;
  // For values that come from elsewhere than a checkpoint.
  void mark_loaded();

 private:
  struct Entry {
    ParameterSlice slice;
    uint32_t ways = 0;  // the alternatives that it is of, as bits
    bool claimed = false;
  };

  // It is of the first alternative that the tensors so far may be of.
  bool is_expected(const Entry& entry) const;
  Status unknown_slice(std::string_view slice_id) const;
  Tensor rows_of_zeros() const;

  DType dtype_;
  std::vector<Entry> slices_;
  std::map<std::string, int, std::less<>> index_of_;
  uint32_t ways_ = ~0u;  // the alternatives that all tensors so far may be of, as bits
  int num_alternatives_ = 0;
  std::optional<float> default_;
  bool on_host_ = false;
  bool computed_ = false;
  RowEncoder* encoder_ = nullptr;
  int64_t num_rows_of_zeros_ = 0;  // the last ones of data_
  Tensor data_;
};

}  // namespace atom
