// FP8 (E4M3) weights with one scale per row, kept as bytes in memory, times activations in FP8 or
// in the model's dtype.
//
// A merged layer (qkv_proj, gate_up_proj) whose parts came with one weight scale each keeps each
// for its own rows, so that no weight is rounded twice. Static scales of activations are the
// parts' own as well: parts that agree are multiplied together.
#pragma once

#include <string>
#include <vector>

#include "config/quant_config.h"
#include "layers/quant/linear_method.h"
#include "ops/linear/linear.h"

namespace atom {

class Fp8LinearMethod : public LinearMethod, private RowEncoder {
 public:
  // `scheme` is quantised, weights per tensor or per token.
  Fp8LinearMethod(const BuildContext& build,
                  const QuantScheme& scheme,
                  const LinearPartition& partition);

  // An error when the checkpoint holds NaN, or a scale that is no positive number.
  Status finish_load(const Stream& stream) override;
  int64_t resident_bytes() const override;
  // Codes, unless the parts have static scales of their own.
  ActivationFormat wanted() const override;
  void apply(const Stream& stream,
             const Activation& x,
             const Tensor& bias,
             const Tensor& y,
             Workspace& workspace) const override;
  void apply_silu_and_mul(const Stream& stream,
                          const Activation& x,
                          const Tensor& bias,
                          const Activation& y,
                          DType dtype,
                          Workspace& workspace) const override;

 private:
  // Rows whose activations are quantised alike.
  struct Part {
    int64_t first_row = 0;
    int64_t num_rows = 0;
    ops::LinearWeight weight;
    Tensor input_scale;  // [1] float32; undefined unless static
  };

  // Online, on a device: rows are quantised as they arrive. (On the CPU in finish_load, while the
  // file's pages wait to be dropped.)
  DType source_dtype() const override { return dtype_; }
  void encode(const Stream& stream, const Tensor& rows, int64_t first_row) override;

  void make_parts();
  void merge_parts();
  Status check_loaded(const Stream& stream) const;
  void place_input_scales(const Stream& stream);
  Tensor row_scales(const Stream& stream) const;
  void quantize_and_multiply(const Stream& stream,
                             const Tensor& x,
                             const Tensor& bias,
                             const Tensor& y,
                             Workspace& workspace) const;
  bool has_one_scale() const;

  const std::string name_;
  const Device device_;
  const DType dtype_;  // the model's
  const QuantScheme scheme_;
  const LinearPartition partition_;
  const bool quantises_activations_;
  const bool encodes_;  // online, on a device
  bool takes_codes_;    // not when parts turn out to have several static scales
  Parameter weight_;  // [local_out_features, local_in_features], FP8 or, online on the CPU, dtype_
  // Per row [rows, 1], on the device where encode() makes them; per tensor [parts]; null online on
  // the CPU.
  std::unique_ptr<Parameter> weight_scale_;
  std::unique_ptr<Parameter> input_scale_;  // [parts]; null unless static
  std::vector<Part> parts_;                 // in row order; meta until finish_load
};

}  // namespace atom
