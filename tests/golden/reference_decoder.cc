#include "tests/golden/reference_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace atom {
namespace {

// Of what is computed in float32 from the same numbers, to a value or its row's size.
constexpr double kNoise = 2e-5;

double root_mean_square(std::span<const double> row) {
  double squares = 0;
  for (const double value : row) squares += value * value;
  return std::sqrt(squares / static_cast<double>(row.size()));
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

void soften(std::vector<double>& values) {
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (double& value : values) sum += value = std::exp(value - largest);
  for (double& value : values) value /= sum;
}

}  // namespace

bool ReferenceDecoder::supports(const ModelConfig& config) {
  const bool is_known = config.architecture == "LlamaForCausalLM" ||
                        config.architecture == "Qwen3ForCausalLM" ||
                        config.architecture == "Qwen3MoeForCausalLM";
  return is_known && config.rope.type == RopeType::kDefault;
}

ReferenceDecoder::ReferenceDecoder(TensorFile file, ModelConfig config)
    : file_(std::move(file)), config_(std::move(config)) {}

Result<ReferenceDecoder> ReferenceDecoder::open(const std::string& folder,
                                                const ModelConfig& config) {
  CHECK(supports(config));
  ASSIGN_OR_RETURN(TensorFile file, TensorFile::open(folder + "/model.safetensors"));
  return ReferenceDecoder(std::move(file), config);
}

ReferenceDecoder::Matrix ReferenceDecoder::load(const std::string& name) const {
  const std::string weight = name + ".weight", scale = name + ".weight_scale";
  const std::vector<int64_t>& shape = file_.shape(weight);
  Matrix matrix{shape.front(), shape.size() > 1 ? shape[1] : 1, file_.in_double(weight)};
  const auto for_each = [&](const auto& visit) {
    for (int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
      visit(i, i / matrix.columns, i % matrix.columns);
    }
  };
  if (file_.dtype(weight) == "U8") {
    const Row bytes = std::move(matrix.values), exponents = file_.in_double(scale);
    matrix.columns *= 2;
    matrix.values.resize(2 * bytes.size());
    for_each([&](int64_t i, int64_t, int64_t) {
      const int code = static_cast<int>(bytes[i / 2]) >> i % 2 * 4 & 15;
      constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      const double value = code < 8 ? kValues[code] : -kValues[code - 8];
      matrix.values[i] = std::ldexp(value, static_cast<int>(exponents[i / 32]) - 127);
    });
  } else if (file_.contains(scale + "_inv")) {
    const Row scales = file_.in_double(scale + "_inv");
    const int64_t across = (matrix.columns + 127) / 128;
    for_each([&](int64_t i, int64_t row, int64_t column) {
      matrix.values[i] *= scales[row / 128 * across + column / 128];
    });
  } else if (file_.contains(scale)) {
    const Row scales = file_.in_double(scale);
    for_each([&](int64_t i, int64_t row, int64_t) {
      matrix.values[i] *= scales[scales.size() == 1 ? 0 : row];
    });
  }
  return matrix;
}

const ReferenceDecoder::Matrix& ReferenceDecoder::matrix(const std::string& name) {
  const auto found = matrices_.find(name);
  return found != matrices_.end() ? found->second
                                  : matrices_.emplace(name, load(name)).first->second;
}

ReferenceDecoder::Row ReferenceDecoder::product(const std::string& name, const Row& x) {
  const Matrix& w = matrix(name);
  CHECK(w.columns == static_cast<int64_t>(x.size()));
  Row y(w.rows);
  for (int64_t n = 0; n < w.rows; ++n) {
    y[n] = std::inner_product(x.begin(), x.end(), w.values.begin() + n * w.columns, 0.0);
  }
  return y;
}

ReferenceDecoder::Rows ReferenceDecoder::normalized(const Rows& rows, const std::string& name) {
  const Row& weight = matrix(name).values;
  Rows result = rows;
  for (Row& row : result) {
    for (size_t first = 0; first < row.size(); first += weight.size()) {
      const std::span<double> part = std::span(row).subspan(first, weight.size());
      const double mean = root_mean_square(part);
      const double scale = 1 / std::sqrt(mean * mean + config_.rms_norm_eps);
      for (size_t i = 0; i < weight.size(); ++i) part[i] *= scale * weight[i];
    }
  }
  return result;
}

ops::RowInDouble ReferenceDecoder::codes_of(const std::string& name, const Row& x) const {
  const QuantScheme scheme = config_.quantization.scheme_of(name);
  const double given = scheme.static_activations ? file_.in_double(name + ".input_scale")[0] : 0;
  return ops::quantize_in_double(x, scheme.activations, scheme.activation_dtype, given, kNoise);
}

ReferenceDecoder::Row ReferenceDecoder::quantized(const std::string& name, const Row& x) const {
  const bool quantizes = config_.quantization.scheme_of(name).activations != QuantType::kNo;
  return quantizes ? codes_of(name, x).values : x;
}

// Whether `read` is x, or a right rounding of it, but for what float32 is off.
bool ReferenceDecoder::is_close(const std::string& name,
                                const Row& x,
                                const LinearInput& read) const {
  if (read.values.size() != x.size()) return false;
  const double size = root_mean_square(x);
  ops::RowInDouble own{x, Row(x.size(), kNoise * size), {}};
  if (read.is_quantized()) own = codes_of(name, x);
  for (size_t k = 0; k < x.size(); ++k) {
    const double off = std::abs(read.values[k] - own.values[k]);
    if (!(off <= own.doubt[k] + kNoise * std::abs(own.values[k]))) return false;
  }
  return true;
}

ReferenceDecoder::Row ReferenceDecoder::input(const std::string& name, const Row& x, size_t token) {
  has_codes_ = false;
  if (replayed_ == nullptr) return x;
  const std::vector<LinearInput>& of_token = (*replayed_)[token];
  if (call_ >= of_token.size() || !is_close(name, x, of_token[call_])) {
    if (problem_.empty()) problem_ = fmt::format("{}: token {} read another row", name, token);
    return x;
  }
  const LinearInput& read = of_token[call_];
  has_codes_ = read.is_quantized();
  return Row(read.values.begin(), read.values.end());
}

ReferenceDecoder::Rows ReferenceDecoder::inputs(const std::string& name, const Rows& x) {
  Rows rows;
  for (size_t token = 0; token < x.size(); ++token) rows.push_back(input(name, x[token], token));
  ++call_;
  return rows;
}

ReferenceDecoder::Row ReferenceDecoder::linear(const std::string& name, const Row& read) {
  const bool quantizes = quantized_ != QuantizedInputs::kNone && !has_codes_;
  return product(name, quantizes ? quantized(name, read) : read);
}

void ReferenceDecoder::rotate(double* head, size_t position) const {
  const int64_t half = config_.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) *
        std::pow(config_.rope.theta, -2.0 * static_cast<double>(i) / config_.head_dim);
    const double a = head[i], b = head[i + half];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + half] = b * std::cos(angle) + a * std::sin(angle);
  }
}

void ReferenceDecoder::attend(const std::string& layer, Rows& hidden) {
  const std::string block = layer + ".self_attn.";
  const int64_t size = config_.head_dim, num_heads = config_.num_attention_heads;
  const int64_t num_kv_heads = config_.num_key_value_heads;
  const Rows x = inputs(block + "q_proj", normalized(hidden, layer + ".input_layernorm"));
  Rows q, k, v;
  for (const Row& row : x) {
    q.push_back(linear(block + "q_proj", row));
    k.push_back(linear(block + "k_proj", row));
    v.push_back(linear(block + "v_proj", row));
  }
  if (config_.architecture != "LlamaForCausalLM") {
    q = normalized(q, block + "q_norm");
    k = normalized(k, block + "k_norm");
  }
  Rows attended;
  for (size_t t = 0; t < x.size(); ++t) {
    for (int64_t h = 0; h < num_heads; ++h) rotate(&q[t][h * size], t);
    for (int64_t h = 0; h < num_kv_heads; ++h) rotate(&k[t][h * size], t);
    Row& out = attended.emplace_back(num_heads * size, 0.0);
    for (int64_t h = 0; h < num_heads; ++h) {
      const int64_t of_kv = h / (num_heads / num_kv_heads) * size;
      Row scores;
      for (size_t s = 0; s <= t; ++s) {
        scores.push_back(
            std::inner_product(&q[t][h * size], &q[t][h * size] + size, &k[s][of_kv], 0.0) /
            std::sqrt(static_cast<double>(size)));
      }
      soften(scores);
      for (size_t s = 0; s <= t; ++s) {
        for (int64_t i = 0; i < size; ++i) out[h * size + i] += scores[s] * v[s][of_kv + i];
      }
    }
  }
  const Rows read = inputs(block + "o_proj", attended);
  for (size_t t = 0; t < x.size(); ++t) {
    const Row update = linear(block + "o_proj", read[t]);
    for (size_t i = 0; i < update.size(); ++i) hidden[t][i] += update[i];
  }
}

void ReferenceDecoder::feed_forward(const std::string& layer, Rows& hidden) {
  const std::string block = layer + ".mlp.";
  const Rows normed = normalized(hidden, layer + ".post_attention_layernorm");
  if (file_.contains(block + "gate.weight")) return run_experts(block, normed, hidden);
  const Rows x = inputs(block + "gate_proj", normed);
  Rows activated;
  for (const Row& row : x) {
    Row& out = activated.emplace_back(linear(block + "gate_proj", row));
    const Row up = linear(block + "up_proj", row);
    for (size_t i = 0; i < out.size(); ++i) out[i] = silu(out[i]) * up[i];
  }
  const Rows read = inputs(block + "down_proj", activated);
  for (size_t t = 0; t < x.size(); ++t) {
    const Row update = linear(block + "down_proj", read[t]);
    for (size_t i = 0; i < update.size(); ++i) hidden[t][i] += update[i];
  }
}

// Experts read what the router reads; what is quantized of it, and between their matrices, is not
// seen from outside.
void ReferenceDecoder::run_experts(const std::string& block, const Rows& x, Rows& hidden) {
  const size_t top_k = config_.extension().get_int("num_experts_per_tok", 1, 64, 1).value();
  const bool quantizes = quantized_ == QuantizedInputs::kAll;
  const auto multiply = [&](const std::string& name, const Row& row) {
    return product(name, quantizes ? quantized(name, row) : row);
  };
  for (size_t t = 0; t < x.size(); ++t) {
    Row scores = product(block + "gate", x[t]);
    soften(scores);
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    order.resize(top_k);
    double sum = 0;
    for (const size_t e : order) sum += scores[e];
    for (const size_t e : order) {
      const std::string expert = fmt::format("{}experts.{}.", block, e);
      const Row read = quantizes ? input(expert + "gate_proj", x[t], t) : x[t];
      Row out = multiply(expert + "gate_proj", read);
      const Row up = multiply(expert + "up_proj", read);
      for (size_t i = 0; i < out.size(); ++i) out[i] = silu(out[i]) * up[i];
      const Row update = multiply(expert + "down_proj", out);
      for (size_t i = 0; i < update.size(); ++i) hidden[t][i] += scores[e] / sum * update[i];
    }
  }
  ++call_;
}

ReferenceDecoder::Rows ReferenceDecoder::run(std::span<const int32_t> ids) {
  call_ = 0;
  problem_.clear();
  const Matrix& embedding = matrix("model.embed_tokens");
  Rows hidden;
  for (const int32_t id : ids) {
    const auto row = embedding.values.begin() + id * embedding.columns;
    hidden.emplace_back(row, row + embedding.columns);
  }
  for (int layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const std::string name = fmt::format("model.layers.{}", layer);
    attend(name, hidden);
    feed_forward(name, hidden);
  }
  const char* head = config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
  Rows logits = normalized(hidden, "model.norm");
  for (Row& row : logits) row = product(head, row);
  return logits;
}

std::vector<std::vector<float>> ReferenceDecoder::logits(std::span<const int32_t> ids,
                                                         QuantizedInputs quantized) {
  quantized_ = quantized;
  replayed_ = nullptr;
  std::vector<std::vector<float>> logits;
  for (const Row& row : run(ids)) logits.emplace_back(row.begin(), row.end());
  return logits;
}

Result<std::vector<std::vector<float>>> ReferenceDecoder::logits(std::span<const int32_t> ids,
                                                                 const LinearInputs& inputs,
                                                                 QuantizedInputs quantized) {
  CHECK(inputs.size() == ids.size());
  quantized_ = quantized;
  replayed_ = &inputs;
  std::vector<std::vector<float>> logits;
  for (const Row& row : run(ids)) logits.emplace_back(row.begin(), row.end());
  if (!problem_.empty()) return internal_error("{}", problem_);
  return logits;
}

}  // namespace atom
