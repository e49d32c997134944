// The experts of one layer of a released model with random weights, and calls of them, for the
// benchmark of fused_moe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness.h"
#include "ops/fused_moe/moe_float8.h"
#include "ops/fused_moe/moe_many.h"
#include "ops/fused_moe/moe_mixed.h"
#include "ops/fused_moe/moe_one.h"
#include "ops/fused_moe/moe_rows.h"
#include "ops/fused_moe/moe_skinny.h"
#include "ops/fused_moe/moe_terms.h"
#include "ops/fused_moe/moe_whole_float8.h"
#include "ops/fused_moe/moe_wide.h"
#include "ops/fused_moe/moe_wide_float8.h"

namespace atom::bench {

struct MoeShape {
  const char* name;
  int num_experts, top_k, hidden_size, intermediate_size;
  ops::GatedActivation activation;
  bool has_bias;
};

// kGroups: of 32 columns.
enum class MoeScales { kNone, kChannels, kBlocks, kGroups };

struct MoeFormat {
  const char* name;
  ops::ExpertFormat format;
  MoeScales scales;
};

enum class MoeKernel {
  kStream,
  kOne,
  kRows,
  kRowsEarly,
  kTerms,
  kSkinny,
  kSkinnyRows,  /* behind the norm that leaves x */
  kSkinnyCodes, /* likewise, x in codes too */
  kWide,        /* bfloat16 and FP8 */
  kWhole,       /* FP8 */
  kMixed /* MXFP4, by x in FP8 */,
};
const char* name_of(MoeKernel kernel);
int bits_of(ops::ExpertFormat format);  // of an element

constexpr int kMoeGroup = 32;  // columns of a scale of a group

class MoeLayers {
 public:
  // Choices of `most_tokens` tokens, of every layer its own, spread evenly over the experts.
  MoeLayers(const MoeShape& shape, const MoeFormat& format, int num_layers, int most_tokens);

  const MoeShape& shape() const { return shape_; }
  const MoeFormat& format() const { return format_; }
  int num_layers() const { return num_layers_; }

  // Tokens [first, first + count) by a layer's experts.
  ops::FusedMoeGpuCall call(int layer, int first, int count) const;
  ops::FusedMoeGpuScratch scratch() const;
  // Whether a kernel takes so many tokens, or is made for them.
  bool fits(MoeKernel kernel, int count) const;
  gpuError_t launch(MoeKernel kernel, int layer, int first, int count, gpuStream_t stream) const;
  // Bytes of the matrices that the call's tokens have chosen, in all layers.
  int64_t active_size(int count) const;
  int64_t num_active(int layer, int count) const;

  // Bytes of the matrices of a layer's experts.
  static int64_t layer_size(const MoeShape& shape, const MoeFormat& format);

  struct Arithmetic {
    bool codes;           // x and what is between the matrices, in FP8, each 128 by a scale
    bool of_norm;         // x is what the norm leaves
    bool rounds_results;  // each expert's, before they are added
  };
  // Of a token by a layer's experts, in double, and what rounding may change of each.
  struct Expected {
    std::vector<double> y, allowed;
  };
  Expected expected(int layer, int token, const Arithmetic& arithmetic) const;
  // y of tokens, as last computed.
  std::vector<uint16_t> result(int count) const;

 private:
  struct Matrix {
    int rows, columns;
    int64_t expert_size;  // bytes
    int64_t num_scales;   // of an expert
    std::unique_ptr<Buffer> data, scales, exponents, bias;
  };

  int64_t exponents_size(const Matrix& matrix) const;  // of an expert
  int64_t num_scales(int rows, int columns) const;     // likewise
  std::unique_ptr<Buffer> make_exponents(const Matrix& matrix) const;
  Matrix make_matrix(int rows, int columns, uint64_t seed) const;
  ops::ExpertMatrices matrices(const Matrix& matrix, int layer) const;
  void choose();
  // Of an expert, without the choice's weight; `allowed` are the magnitudes of the products.
  Expected result_of(int layer, int expert, const std::vector<double>& x, bool codes) const;
  std::vector<double> multiply(const Matrix& matrix,
                               int layer,
                               int expert,
                               const std::vector<double>& x,
                               std::vector<double>& magnitudes) const;

  const MoeShape shape_;
  const MoeFormat format_;
  const int num_layers_, most_tokens_;
  Matrix gate_up_, down_;
  Buffer x_, y_, ids_, weights_, activated_, results_;
  // Of the kernels for many tokens.
  Buffer choices_, rows_, begins_, rows_of_x_, scales_;
  // Of the one for few tokens in FP8.
  int num_skinny_rows() const;
  gpuError_t launch_skinny(const ops::FusedMoeGpuCall& call, bool codes, gpuStream_t stream) const;
  Buffer skinny_ints_, skinny_codes_, skinny_scales_;
  // Of the norm before the experts, which makes another x of x.
  gpuError_t launch_norm(const ops::FusedMoeGpuCall& call, bool codes, gpuStream_t stream) const;
  Buffer norm_weight_, norm_rows_, norm_codes_, norm_scales_;
  Buffer one_sums_;  // of one or few tokens by images
  Buffer counters_;  // zeros
  std::vector<int32_t> host_ids_;
  std::vector<float> host_weights_;
};

}  // namespace atom::bench
