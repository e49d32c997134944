// A quantized weight [out_features, in_features]: its parameters as checkpoints store them, and
// what finish_load() makes of them, packed for the kernels of this machine. It multiplies nothing,
// so that linear layers and experts share it.
//
// A merged layer (qkv_proj, gate_up_proj) whose parts came with one scale each keeps each for its
// own rows, so that no weight is rounded twice. Static scales of activations are the parts' own as
// well: parts that agree are multiplied together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/quant_config.h"
#include "layers/linear/linear_partition.h"
#include "nn/build_context.h"
#include "nn/module.h"
#include "ops/linear/linear.h"

namespace atom {

// An error that says why weights of this scheme cannot be computed with.
Status check_quantized_weight(const QuantScheme& scheme,
                              const LinearPartition& partition,
                              const std::string& name);

class QuantizedWeight : public Module, private RowEncoder {
 public:
  // Rows whose activations are quantized alike.
  struct Part {
    int64_t first_row = 0;
    int64_t num_rows = 0;
    ops::LinearWeight weight;
    Tensor input_scale;  // [1] float32; undefined unless static
  };

  // `scheme` has passed check_quantized_weight().
  QuantizedWeight(const BuildContext& build,
                  const QuantScheme& scheme,
                  const LinearPartition& partition);

  // An error when the checkpoint holds NaN, or a scale that is no positive number.
  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;
  // Gives the memory back; parts() is empty then.
  void release();

  // As they came, until finish_load: codes [rows, stored elements of a row] and what
  // make_scales() has.
  const Tensor& loaded_codes() const { return weight_.data(); }
  const Tensor& loaded_scales() const { return weight_scale_->data(); }

  // In row order; meta until finish_load. One, unless there are several static scales.
  const std::vector<Part>& parts() const { return parts_; }
  const QuantScheme& scheme() const { return scheme_; }
  // As the scheme says, unless activations are to stay in the model's dtype.
  bool quantizes_activations() const { return quantizes_activations_; }

 private:
  // Online, on a device: rows are quantized as they arrive. (On the CPU in finish_load, while the
  // file's pages wait to be dropped.)
  DType source_dtype() const override { return dtype_; }
  void encode(const Stream& stream, const Tensor& rows, int64_t first_row) override;

  void register_parameters();
  void make_parts();
  void merge_parts();
  void place_input_scales(const Stream& stream);
  Status check_loaded(const Stream& stream) const;
  ops::QuantFormat format_of_parts() const;
  bool has_one_scale() const;
  bool quantizes_on_host() const { return scheme_.online && !encodes_; }
  void pack_part(const Stream& stream, Part& part);
  void place_part(const Stream& stream, Part& part);
  void quantize_part(const Stream& stream, Part& part);
  Tensor scales_of(const Part& part) const;

  const std::string name_;
  const Device device_;
  const DType dtype_;  // the model's
  const QuantScheme scheme_;
  const LinearPartition partition_;
  const bool quantizes_activations_;
  const bool encodes_;  // online, on a device
  const ops::QuantFormat format_;
  Parameter weight_;  // [local_out_features, ...] of codes or, to be quantized on the host, dtype_
  // Per row [rows, 1] or [rows, groups], blocks [block rows, groups], per tensor [parts]; on the
  // device where encode() makes them; null where they are made on the host.
  std::unique_ptr<Parameter> weight_scale_;
  std::unique_ptr<Parameter> input_scale_;  // [parts]; null unless static
  std::vector<Part> parts_;
};

}  // namespace atom
