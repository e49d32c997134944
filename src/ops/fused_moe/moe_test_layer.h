// For the tests of fused_moe: a layer's experts with random weights, calls of them, and what these
// give in double.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/fused_moe/fused_moe_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops::moe_test {

using Kind = GatedActivationKind;

struct Sizes {
  int64_t num_tokens, top_k, num_experts, hidden_size, intermediate_size;
};

struct Options {
  DType dtype = DType::kFloat32;
  std::optional<QuantFormat> format = {};  // else weights of dtype
  std::optional<DType> y_dtype = {};       // else dtype
  GatedActivation activation = {};
  CodeFormat input = {};  // of both matrices, whose scales are the tokens' own
  // How far what is between the matrices may be from what it is in double, of which it may have
  // another code.
  double doubt = 1e-5;
  // Sums of products of codes lose what FP8 matrix units cut off.
  bool cuts = false;
  bool has_bias = false;
  // Of the ids the experts with an odd one are elsewhere; then some ids are no expert's.
  bool is_part = false;
  // Exponents of MXFP4 are of many powers of two, and the largest ones are of zeros.
  bool has_far_exponents = false;
  uint64_t seed = 1;
};

// A matrix as it is stored in rows, and its values in float32 as it is multiplied.
struct StoredRows {
  Tensor data, scales, values;
};

// A layer's experts and one call of them, with what they were made from.
struct Layer {
  Sizes sizes;
  Options options;
  std::vector<LinearWeight> gate_up, down;
  std::vector<StoredRows> gate_up_rows, down_rows;
  Tensor gate_up_bias, down_bias, places;
  Tensor x, ids, weights;
  QuantizedRows x_codes;  // undefined unless code_x() has made them

  Layer(const Sizes& sizes, const Options& options);

  // Has calls take x in codes, too, as options.input says.
  void code_x();

  ExpertWeights experts() const {
    return {gate_up, down, gate_up_bias, down_bias, places, options.input, options.input};
  }

 private:
  void add_weight(int64_t rows,
                  int64_t columns,
                  uint64_t seed,
                  std::vector<LinearWeight>& packed,
                  std::vector<StoredRows>& stored);
  void choose();
};

// y in double, and how far from it one rounding of what the activation gives and the errors of
// float32 sums may lead.
struct Expected {
  std::vector<double> y, allowed;
};

Expected expected_of(const Layer& layer);
void expect_matches(const Expected& expected, const Tensor& y, const std::string& what);

inline constexpr Sizes kSizes[] = {
    {1, 2, 8, 64, 32},
    {1, 1, 1, 1, 1},
    {3, 4, 5, 33, 17},
    {40, 2, 4, 96, 70},
    {30, 8, 16, 130, 64},
};

inline constexpr QuantFormat kFormats[] = {
    {QuantDType::kFloat8E4M3, QuantType::kPerToken, 1},
    {QuantDType::kFloat8E4M3, QuantType::kPer128x128, 128},
    {QuantDType::kInt8, QuantType::kPerToken, 1},
    {QuantDType::kFloat4E2M1, QuantType::kPer1x32, 1},
    {QuantDType::kInt4, QuantType::kPer1x128, 1},
    {QuantDType::kInt4, QuantType::kPer1x32, 1},
};

inline std::string name_of(const QuantFormat& format) {
  return std::string(quant_dtype_name(format.dtype)) + " " + quant_type_name(format.granularity);
}

inline const GatedActivation kActivations[] = {{Kind::kSilu, false},
                                               {Kind::kSilu, true},
                                               {Kind::kGelu, false},
                                               {Kind::kGeluTanh, true},
                                               {Kind::kClampedSwiGlu, true, 1.702f, 0.7f},
                                               {Kind::kClampedSwiGlu, false, 1.3f, 2.0f}};

}  // namespace atom::ops::moe_test
