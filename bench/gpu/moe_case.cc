#include "moe_case.h"

#include <algorithm>
#include <random>
#include <set>

#include "ops/fused_moe/moe_stream.h"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace atom::bench {
namespace {

using namespace ops;

constexpr int kBlock = 128;  // rows and columns of a scale of a block

int64_t divide_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace

int bits_of(ExpertFormat format) {
  switch (format) {
    case ExpertFormat::kAsX:
      return 16;
    case ExpertFormat::kFloat8:
    case ExpertFormat::kInt8:
      return 8;
    default:
      return 4;
  }
}

MoeLayers::MoeLayers(const MoeShape& shape,
                     const MoeFormat& format,
                     int num_layers,
                     int most_tokens)
    : shape_(shape),
      format_(format),
      num_layers_(num_layers),
      most_tokens_(most_tokens),
      gate_up_(make_matrix(2 * shape.intermediate_size, shape.hidden_size, 11)),
      down_(make_matrix(shape.hidden_size, shape.intermediate_size, 12)),
      x_(int64_t{most_tokens} * shape.hidden_size * 2),
      y_(x_.size()),
      ids_(int64_t{num_layers} * most_tokens * shape.top_k * 4),
      weights_(ids_.size()),
      activated_(int64_t{most_tokens} * shape.top_k * padded_moe_columns(shape.intermediate_size) *
                 2),
      results_(int64_t{most_tokens} * shape.top_k * shape.hidden_size * 4),
      choices_(ids_.size()),
      rows_(ids_.size()),
      begins_(2 * (kMaxGpuExperts + 1) * 4),
      rows_of_x_(int64_t{most_tokens} * shape.top_k * padded_moe_columns(shape.hidden_size) * 2),
      scales_(int64_t{most_tokens} * shape.top_k *
              std::max((padded_moe_columns(shape.hidden_size) +
                        padded_moe_columns(shape.intermediate_size)) /
                           kMoeCodeGroup,
                       1 + moe_term_groups(shape.intermediate_size)) *
              4),
      skinny_ints_(2 * num_skinny_rows() * 4),
      skinny_codes_(int64_t{num_skinny_rows()} * (shape.hidden_size + shape.intermediate_size)),
      skinny_scales_(skinny_codes_.size() / kMoeSkinnyGroup * 4),
      norm_weight_(int64_t{shape.hidden_size} * 2),
      norm_rows_(x_.size()),
      norm_codes_(x_.size() / 2),
      norm_scales_(norm_codes_.size() / kMoeSkinnyGroup * 4),
      one_sums_(kMaxMoeOneTokens *
                (moe_one_gate_parts_size(shape.top_k, shape.intermediate_size) +
                 moe_one_down_parts_size(shape.hidden_size)) *
                4),
      counters_(std::max<int64_t>(
                    kNumMoeSkinnyCounters,
                    num_moe_one_words(kMaxMoeOneTokens, shape.top_k, shape.intermediate_size)) *
                4) {
  counters_.fill_bytes(0);
  fill_random(x_.data(), Element::kBFloat16, x_.size() / 2, 1.0f, 7);
  fill_random(norm_weight_.data(), Element::kBFloat16, shape.hidden_size, 1.0f, 8);
  choose();
}

int64_t MoeLayers::exponents_size(const Matrix& matrix) const {
  return is_float4(format_.format) ? int64_t{matrix.rows} * matrix.columns / kMoeGroup : 0;
}

std::unique_ptr<Buffer> MoeLayers::make_exponents(const Matrix& matrix) const {
  // Every layer has the same ones, because making them takes long.
  std::mt19937 random(9);
  std::vector<uint8_t> exponents(shape_.num_experts * exponents_size(matrix));
  // Of factors of 2^-10 to 2^-7, four of a random number.
  for (size_t i = 0; i < exponents.size(); i += 4) {
    uint32_t bits = random();
    for (size_t j = i; j < std::min(i + 4, exponents.size()); ++j, bits >>= 8) {
      exponents[j] = static_cast<uint8_t>(117 + bits % 4);
    }
  }
  const auto size = static_cast<int64_t>(exponents.size());
  auto buffer = std::make_unique<Buffer>(num_layers_ * size);
  for (int layer = 0; layer < num_layers_; ++layer) {
    ATOM_BENCH_CHECK(ATOM_GPU(Memcpy)(
        buffer->data(layer * size), exponents.data(), size, ATOM_GPU(MemcpyHostToDevice)));
  }
  return buffer;
}

int64_t MoeLayers::num_scales(int rows, int columns) const {
  switch (format_.scales) {
    case MoeScales::kBlocks:
      return divide_up(rows, kBlock) * divide_up(columns, kBlock);
    case MoeScales::kGroups:
      return rows * divide_up(columns, kMoeGroup);
    default:
      return rows;
  }
}

MoeLayers::Matrix MoeLayers::make_matrix(int rows, int columns, uint64_t seed) const {
  const int64_t num_experts = int64_t{num_layers_} * shape_.num_experts;
  Matrix matrix{
      rows, columns, int64_t{rows} * columns * bits_of(format_.format) / 8, 0, {}, {}, {}, {}};
  matrix.data = std::make_unique<Buffer>(num_experts * matrix.expert_size);
  // So large that sums are about as large as x.
  const float bound = std::sqrt(3.0f / static_cast<float>(columns));
  const int64_t size = matrix.data->size();
  switch (format_.format) {
    case ExpertFormat::kAsX:
      fill_random(matrix.data->data(), Element::kBFloat16, size / 2, bound, seed);
      break;
    case ExpertFormat::kFloat8:
      fill_random(matrix.data->data(), Element::kFloat8E4M3, size, 448.0f, seed);
      break;
    case ExpertFormat::kFloat4:
    case ExpertFormat::kFloat4Images:
    case ExpertFormat::kInt8:
    case ExpertFormat::kInt4:
      // Most bytes of a random float are random.
      fill_random(matrix.data->data(), Element::kFloat32, size / 4, 1.0f, seed);
      if (is_float4(format_.format)) matrix.exponents = make_exponents(matrix);
      break;
  }
  if (format_.scales != MoeScales::kNone) {
    matrix.num_scales = num_scales(rows, columns);
    const float largest = format_.format == ExpertFormat::kInt4   ? 8.0f
                          : format_.format == ExpertFormat::kInt8 ? 128.0f
                                                                  : 448.0f;
    matrix.scales = std::make_unique<Buffer>(num_experts * matrix.num_scales * 4);
    fill_random(matrix.scales->data(),
                Element::kFloat32,
                num_experts * matrix.num_scales,
                2 * bound / largest,
                seed + 1);
  }
  if (shape_.has_bias) {
    matrix.bias = std::make_unique<Buffer>(num_experts * rows * 2);
    fill_random(matrix.bias->data(), Element::kBFloat16, num_experts * rows, 0.5f, seed + 2);
  }
  return matrix;
}

ExpertMatrices MoeLayers::matrices(const Matrix& matrix, int layer) const {
  const int64_t first = int64_t{layer} * shape_.num_experts;
  const bool blocks = format_.scales == MoeScales::kBlocks;
  ExpertMatrices result{};
  result.data = matrix.data->data(first * matrix.expert_size);
  result.expert_stride = matrix.expert_size;
  if (matrix.scales) result.scales = matrix.scales->data<float>(first * matrix.num_scales * 4);
  result.scale_stride = matrix.num_scales;
  result.scale_rows = blocks ? kBlock : 1;
  result.scale_columns = blocks                                 ? kBlock
                         : format_.scales == MoeScales::kGroups ? kMoeGroup
                                                                : matrix.columns;
  result.scales_across = static_cast<int>(divide_up(matrix.columns, result.scale_columns));
  if (matrix.bias) result.bias = matrix.bias->data(first * matrix.rows * 2);
  result.bias_element = Element::kBFloat16;
  result.exponent_stride = exponents_size(matrix);
  if (matrix.exponents) {
    result.exponents = matrix.exponents->data<uint8_t>(first * result.exponent_stride);
  }
  return result;
}

void MoeLayers::choose() {
  std::mt19937 random(5);
  for (int64_t i = 0; i < int64_t{num_layers_} * most_tokens_; ++i) {
    std::set<int32_t> chosen;
    while (static_cast<int>(chosen.size()) < shape_.top_k) {
      chosen.insert(static_cast<int32_t>(random() % shape_.num_experts));
    }
    std::vector<int32_t> order(chosen.begin(), chosen.end());
    std::shuffle(order.begin(), order.end(), random);
    host_ids_.insert(host_ids_.end(), order.begin(), order.end());
  }
  std::uniform_real_distribution<float> uniform(0.0f, 2.0f / static_cast<float>(shape_.top_k));
  for (size_t i = 0; i < host_ids_.size(); ++i) host_weights_.push_back(uniform(random));
  ids_.upload(host_ids_);
  weights_.upload(host_weights_);
}

FusedMoeGpuCall MoeLayers::call(int layer, int first, int count) const {
  const int64_t first_choice = (int64_t{layer} * most_tokens_ + first) * shape_.top_k;
  FusedMoeGpuCall call{};
  call.x = x_.data(int64_t{first} * shape_.hidden_size * 2);
  call.ids = ids_.data<int32_t>(first_choice * 4);
  call.weights = weights_.data<float>(first_choice * 4);
  call.y = y_.data(int64_t{first} * shape_.hidden_size * 2);
  call.gate_up = matrices(gate_up_, layer);
  call.down = matrices(down_, layer);
  call.activation = shape_.activation;
  call.x_stride = call.y_stride = call.hidden_size = shape_.hidden_size;
  call.num_tokens = count;
  call.top_k = shape_.top_k;
  call.num_ids = call.num_experts = shape_.num_experts;
  call.intermediate_size = shape_.intermediate_size;
  call.element = call.y_element = Element::kBFloat16;
  call.format = format_.format;
  return call;
}

FusedMoeGpuScratch MoeLayers::scratch() const {
  FusedMoeGpuScratch scratch{};
  scratch.activated = activated_.data();
  scratch.results = results_.data<float>();
  return scratch;
}

const char* name_of(MoeKernel kernel) {
  constexpr const char* kNames[] = {"stream",
                                    "one",
                                    "rows",
                                    "rows-early",
                                    "terms",
                                    "skinny",
                                    "skinny-rows",
                                    "skinny-codes",
                                    "wide",
                                    "whole",
                                    "mixed"};
  return kNames[static_cast<int>(kernel)];
}

bool MoeLayers::fits(MoeKernel kernel, int count) const {
  const FusedMoeGpuCall call = this->call(0, 0, count);
  switch (kernel) {
    case MoeKernel::kStream:
      return fits_moe_stream(call);
    case MoeKernel::kOne:
      return fits_moe_one(call) || fits_moe_one_rows(call) || fits_moe_one_images(call);
    case MoeKernel::kRows:
      return (count <= kMaxStreamTokens || count * shape_.top_k / shape_.num_experts <= 64 ||
              is_float4(format_.format)) &&
             fits_moe_rows(call);
    case MoeKernel::kRowsEarly:
      return fits_moe_rows_early(call);
    case MoeKernel::kTerms:
      return fits_moe_terms(call);
    case MoeKernel::kSkinny:
    case MoeKernel::kSkinnyRows:
    case MoeKernel::kSkinnyCodes:
      return fits_moe_skinny(call);
    case MoeKernel::kWide:
      return count > kMaxStreamTokens &&
             (format_.format == ExpertFormat::kAsX ? fits_moe_wide(call)
                                                   : fits_moe_wide_float8(call));
    case MoeKernel::kWhole:
      return count > kMaxStreamTokens && fits_moe_whole_float8(call);
    case MoeKernel::kMixed:
      return count * shape_.top_k >= kLeastMoeMixedRows * shape_.num_experts &&
             fits_moe_mixed(call);
  }
  return false;
}

gpuError_t MoeLayers::launch(
    MoeKernel kernel, int layer, int first, int count, gpuStream_t stream) const {
  const FusedMoeGpuCall call = this->call(layer, first, count);
  FusedMoeGpuScratch shared = scratch();
  shared.choices = choices_.data<int32_t>();
  shared.row_begins = begins_.data<int32_t>();
  shared.tile_begins = begins_.data<int32_t>((kMaxGpuExperts + 1) * 4);
  if (kernel == MoeKernel::kStream) return launch_moe_stream(call, shared, true, stream);
  if (kernel == MoeKernel::kOne && call.format == ExpertFormat::kFloat4Images) {
    const int64_t parts =
        call.num_tokens * moe_one_gate_parts_size(call.top_k, call.intermediate_size);
    auto* const sums = one_sums_.data<float>();
    return launch_moe_one_images(call, {sums, sums + parts, counters_.data<int32_t>()}, stream);
  }
  if (kernel == MoeKernel::kOne && call.format != ExpertFormat::kFloat8) {
    return launch_moe_one_rows(call, {results_.data(), counters_.data<int32_t>()}, stream);
  }
  if (kernel == MoeKernel::kOne) {
    return launch_moe_one(call, {counters_.data<int32_t>()}, stream);
  }
  if (kernel == MoeKernel::kSkinny) return launch_skinny(call, false, stream);
  if (kernel == MoeKernel::kSkinnyRows || kernel == MoeKernel::kSkinnyCodes) {
    const bool codes = kernel == MoeKernel::kSkinnyCodes;
    ATOM_BENCH_CHECK(launch_norm(call, codes, stream));
    FusedMoeGpuCall behind = call;
    behind.x = norm_rows_.data();
    return launch_skinny(behind, codes, stream);
  }
  const MoeRowsScratch of_rows = {shared, rows_of_x_.data(), results_.data()};
  if (kernel == MoeKernel::kRows) return launch_moe_rows(call, of_rows, stream);
  if (kernel == MoeKernel::kRowsEarly) return launch_moe_rows_early(call, of_rows, stream);
  if (kernel == MoeKernel::kTerms) {
    const int64_t num_choices = int64_t{most_tokens_} * shape_.top_k;
    float* x_scales = scales_.data<float>();
    return launch_moe_terms(
        call,
        {shared, rows_of_x_.data(), x_scales, x_scales + num_choices, results_.data()},
        stream);
  }
  if (format_.format == ExpertFormat::kAsX) {
    return launch_moe_wide(call, {shared, rows_of_x_.data(), results_.data()}, stream);
  }
  shared.rows = rows_.data<int32_t>();
  float* x_scales = scales_.data<float>();
  if (kernel == MoeKernel::kMixed) {
    return launch_moe_mixed(
        call, {shared, rows_of_x_.data<uint8_t>(), x_scales, results_.data()}, stream);
  }
  float* activated_scales = x_scales + int64_t{most_tokens_} * shape_.top_k *
                                           padded_moe_columns(shape_.hidden_size) / kMoeCodeGroup;
  const MoeFloat8Scratch of_float8 = {
      shared, rows_of_x_.data<uint8_t>(), x_scales, activated_scales, results_.data()};
  return kernel == MoeKernel::kWhole ? launch_moe_whole_float8(call, {}, of_float8, stream)
                                     : launch_moe_wide_float8(call, of_float8, stream);
}

int MoeLayers::num_skinny_rows() const {
  return num_moe_skinny_rows(
      std::min(most_tokens_, kMaxMoeSkinnyTokens), shape_.top_k, shape_.num_experts);
}

gpuError_t MoeLayers::launch_norm(const FusedMoeGpuCall& call,
                                  bool codes,
                                  gpuStream_t stream) const {
  const int64_t size = call.hidden_size;
  RmsNormLaunch norm;
  norm.x = call.x;
  norm.weight = norm_weight_.data();
  norm.out = norm.rows = norm_rows_.data();
  norm.x_strides[0] = norm.out_strides[0] = norm.rows_stride = size;
  norm.num_tokens = call.num_tokens;
  norm.size = size;
  norm.eps = 1e-6f;
  if (!codes) {
    norm.rows = nullptr;
    return launch_rms_norm(norm, stream);
  }
  norm.out = norm_codes_.data();
  norm.scales = norm_scales_.data<float>();
  norm.group_size = kMoeSkinnyGroup;
  return launch_rms_norm(norm, stream);
}

gpuError_t MoeLayers::launch_skinny(const FusedMoeGpuCall& call,
                                    bool codes,
                                    gpuStream_t stream) const {
  const int64_t num_rows = num_moe_skinny_rows(call.num_tokens, shape_.top_k, shape_.num_experts);
  const MoeTokenCodes given = {
      norm_codes_.data<uint8_t>(), norm_scales_.data<float>(), call.hidden_size};
  return launch_moe_skinny(call,
                           codes ? given : MoeTokenCodes(),
                           {.choices = skinny_ints_.data<int32_t>(),
                            .weights = skinny_ints_.data<float>(num_rows * 4),
                            .counters = counters_.data<int32_t>(),
                            .x = skinny_codes_.data<uint8_t>(),
                            .activated = skinny_codes_.data<uint8_t>(num_rows * shape_.hidden_size),
                            .x_scales = skinny_scales_.data<float>(),
                            .activated_scales = skinny_scales_.data<float>(
                                num_rows * shape_.hidden_size / kMoeSkinnyGroup * 4),
                            .results = results_.data<float>(),
                            .num_rows = static_cast<int>(num_rows)},
                           stream);
}

int64_t MoeLayers::layer_size(const MoeShape& shape, const MoeFormat& format) {
  return int64_t{shape.num_experts} * shape.hidden_size * shape.intermediate_size * 3 *
         bits_of(format.format) / 8;
}

int64_t MoeLayers::num_active(int layer, int count) const {
  const auto begin = host_ids_.begin() + int64_t{layer} * most_tokens_ * shape_.top_k;
  return static_cast<int64_t>(
      std::set<int32_t>(begin, begin + int64_t{count} * shape_.top_k).size());
}

int64_t MoeLayers::active_size(int count) const {
  int64_t size = 0;
  for (int layer = 0; layer < num_layers_; ++layer) {
    size += num_active(layer, count) * (gate_up_.expert_size + down_.expert_size +
                                        4 * (gate_up_.num_scales + down_.num_scales) +
                                        exponents_size(gate_up_) + exponents_size(down_));
  }
  return size;
}

}  // namespace atom::bench
