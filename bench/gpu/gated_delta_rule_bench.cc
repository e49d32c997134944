// Checks and times the GPU kernels of a Gated DeltaNet layer between its projections, with the
// heads of Qwen3-Next (16 of keys, 32 of values, 128 x 128) in bfloat16.
//
// usage: gated_delta_rule_gpu_bench [check|decode|prefill|ways]
//
// Checks compare the chunked kernels with the recurrent one, which goes token by token in float32,
// on the same inputs; the operators' tests compare both with the CPU. Timings of decodes are in
// percent of the copy bandwidth for the bytes of the states, measured in the same run.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>

#include "harness.h"
#include "ops/causal_conv1d/causal_conv1d_kernels.h"
#include "ops/gated_delta_net/gated_delta_net_kernels.h"
#include "ops/gated_delta_rule/chunked/chunked_sm90.h"
#include "ops/gated_delta_rule/recurrent/recurrent_cuda.h"
#include "ops/rms_norm_gated/rms_norm_gated_kernels.h"

namespace atom::bench {
namespace {

using namespace ops;
constexpr int64_t kKeyHeads = 16, kHeads = 32, kDim = 128, kWidth = 4;

const char* name_of(Element state_element) {
  return state_element == Element::kFloat32 ? "float32" : "bfloat16";
}

// Sequences, after a history, in `num_sets` sets of slots. With `keeps` the state behind each token
// goes to a slot of its own.
class Layer {
 public:
  // Of as many tokens each.
  Layer(int64_t num_sequences,
        int64_t tokens_each,
        int num_sets = 1,
        bool keeps = false,
        Element element_of_state = Element::kFloat32)
      : Layer(std::vector<int64_t>(num_sequences, tokens_each),
              kHeads,
              num_sets,
              keeps,
              element_of_state) {}

  Layer(const std::vector<int64_t>& lengths,
        int64_t num_value_heads,
        int num_sets = 1,
        bool keeps = false,
        Element element_of_state = Element::kFloat32)
      : num_heads(num_value_heads),
        num_values(num_heads * kDim),
        num_channels(2 * kKeyHeads * kDim + num_values),
        num_tokens(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
        num_slots(static_cast<int64_t>(lengths.size()) + (keeps ? num_tokens : 0)),
        state_element(element_of_state),
        qkv(num_tokens * num_channels * 2),
        z(num_tokens * num_values * 2),
        ba(num_tokens * 2 * num_heads * 2),
        out(num_tokens * num_values * 2),
        conv_weight(kWidth * num_channels * 4),
        gates(2 * num_heads * 4),
        norm_weight(kDim * 4),
        conv_state(num_slots * num_sets * (kWidth - 1) * num_channels * 2),
        state(num_slots * num_sets * state_bytes()),
        indices((3 * static_cast<int64_t>(lengths.size()) + 1 + num_tokens) * 4),
        codes(num_tokens * (num_values + 4 * num_heads)) {
    fill_operands();
    upload_batch(lengths, keeps);
  }

  GatedDeltaRuleArgs rule(int set = 0) const {
    return {.qkv = qkv.data(),
            .a = ba.data(),
            .b = ba.data(num_heads * 2),
            .a_log = gates.data<float>(),
            .dt_bias = gates.data<float>(num_heads * 4),
            .state = state.data(set * num_slots * state_bytes()),
            .out = out.data(),
            .batch = batch,
            .qkv_stride = num_channels,
            .out_stride = num_values,
            .a_stride = 2 * num_heads,
            .b_stride = 2 * num_heads,
            .num_k_heads = kKeyHeads,
            .num_v_heads = num_heads,
            .head_k_dim = kDim,
            .head_v_dim = kDim,
            .element = Element::kBFloat16,
            .state_element = state_element};
  }
  // A head is a group.
  QuantizeArgs result_codes() const {
    return {.x = nullptr,
            .values = codes.data<uint8_t>(),
            .scales = codes.data<float>(num_tokens * num_values),
            .static_scale = nullptr,
            .exponents = nullptr,
            .x_stride = 0,
            .values_stride = num_values,
            .size = num_values,
            .element = Element::kBFloat16,
            .dtype = QuantDType::kFloat8E4M3,
            .group_size = kDim,
            .rounds_exponents = false};
  }
  GatedDeltaNetArgs net_to_codes(int set = 0) const {
    GatedDeltaNetArgs args = net(set);
    args.codes = result_codes();
    return args;
  }
  GatedDeltaNetArgs net(int set = 0) const {
    return {.rule = rule(set),
            .conv_weight = conv_weight.data<float>(),
            .conv_state = conv_state.data(set * num_slots * (kWidth - 1) * num_channels * 2),
            .z = z.data(),
            .norm_weight = norm_weight.data<float>(),
            .z_stride = num_values,
            .conv_kernel_size = kWidth,
            .eps = 1e-6f,
            .codes = {}};
  }
  CausalConv1dArgs convolution(void* to) const {
    return {.x = qkv.data(),
            .weight = conv_weight.data<float>(),
            .state = conv_state.data(),
            .out = to,
            .batch = batch,
            .x_stride = num_channels,
            .out_stride = num_channels,
            .num_channels = num_channels,
            .kernel_size = kWidth,
            .element = Element::kBFloat16};
  }
  RmsNormGatedArgs norm(void* to) const {
    return {.x = out.data(),
            .gate = z.data(),
            .weight = norm_weight.data<float>(),
            .out = to,
            .x_stride = num_values,
            .gate_stride = num_values,
            .out_stride = num_values,
            .num_heads = num_heads,
            .size = kDim,
            .eps = 1e-6f,
            .element = Element::kBFloat16};
  }

  // Of a sequence.
  int64_t state_bytes() const { return num_heads * kDim * kDim * bytes_of(state_element); }

  int64_t num_heads, num_values, num_channels, num_tokens, num_slots;
  Element state_element;
  Buffer qkv, z, ba, out, conv_weight, gates, norm_weight, conv_state, state, indices, codes;
  StateBatchArgs batch;

 private:
  void fill_operands() {
    fill_random(qkv.data(), Element::kBFloat16, num_tokens * num_channels, 1.0f, 1);
    fill_random(z.data(), Element::kBFloat16, num_tokens * num_values, 2.0f, 2);
    fill_random(ba.data(), Element::kBFloat16, num_tokens * 2 * num_heads, 3.0f, 3);
    fill_random(conv_weight.data(), Element::kFloat32, kWidth * num_channels, 1.0f, 4);
    fill_random(norm_weight.data(), Element::kFloat32, kDim, 1.0f, 5);
    fill_random(conv_state.data(), Element::kBFloat16, conv_state.size() / 2, 1.0f, 6);
    fill_random(state.data(), state_element, state.size() / bytes_of(state_element), 0.5f, 7);
    out.fill_bytes(0xff);
    std::vector<float> host_gates(2 * num_heads, 0.5f);
    for (int64_t head = 0; head < num_heads; ++head) {
      host_gates[head] = 2.0f - 9.0f * static_cast<float>(head) / static_cast<float>(num_heads);
    }
    gates.upload(host_gates);
  }

  void upload_batch(const std::vector<int64_t>& lengths, bool keeps) {
    const auto num_sequences = static_cast<int64_t>(lengths.size());
    std::vector<int32_t> starts = {0}, ends, slots, kept;
    for (const int64_t length : lengths) {
      slots.push_back(keeps ? starts.back() + static_cast<int32_t>(slots.size())
                            : static_cast<int32_t>(slots.size()));
      for (int64_t t = 0; t < length; ++t) {
        kept.push_back(starts.back() + static_cast<int32_t>(t + ends.size() + 1));
      }
      starts.push_back(starts.back() + static_cast<int32_t>(length));
      ends.push_back(static_cast<int32_t>(length + 5));
    }
    std::vector<int32_t> host = starts;
    for (const auto* part : {&ends, &slots, &kept}) {
      host.insert(host.end(), part->begin(), part->end());
    }
    indices.upload(host);
    batch = {.query_start = indices.data<int32_t>(),
             .seq_lens = indices.data<int32_t>((num_sequences + 1) * 4),
             .state_slots = indices.data<int32_t>((2 * num_sequences + 1) * 4),
             .token_slots = keeps ? indices.data<int32_t>((3 * num_sequences + 1) * 4) : nullptr,
             .num_sequences = num_sequences,
             .num_tokens = num_tokens,
             .num_slots = num_slots,
             .max_queries = *std::max_element(lengths.begin(), lengths.end())};
  }
};

using Chunked = bool(const GatedDeltaRuleArgs&, void* workspace, void* queue);

void run_chunked(const GatedDeltaRuleArgs& args,
                 const Buffer& workspace,
                 gpuStream_t stream,
                 Chunked* by = chunked_sm90) {
  if (by(args, workspace.data(), stream)) return;
  std::printf("the rows have no tensor map\n");
  std::exit(1);
}

// Of all elements, |got - expected| as a share of their root mean square.
struct Difference {
  double largest, mean_square;
};

template <typename T, typename Value>
Difference difference_of(const std::vector<T>& got, const std::vector<T>& expected, Value&& value) {
  double squares = 0, errors = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double a = value(got, i), b = value(expected, i), error = std::fabs(a - b);
    squares += b * b;
    errors += error * error;
    largest = error <= largest ? largest : error;  // NaN stays
  }
  const double scale = std::sqrt(squares / static_cast<double>(got.size()));
  return {largest / scale, std::sqrt(errors / squares)};
}

// What prefills are checked and timed with.
struct Prompts {
  std::string name;
  std::vector<int64_t> lengths;
  int64_t num_heads = kHeads;
};
Prompts equal_prompts(int64_t num_sequences, int64_t tokens_each) {
  return {std::to_string(num_sequences) + " x " + std::to_string(tokens_each),
          std::vector<int64_t>(num_sequences, tokens_each)};
}
Prompts mixed_prompts() {
  return {"mixed", {3000, 77, 1, 2048, 640, 129, 1800, 497}};
}
// Of Qwen3.5-27B.
Prompts with_more_heads(Prompts prompts) {
  prompts.num_heads = 48;
  prompts.name += ", 48 heads";
  return prompts;
}

int check_chunks(const Prompts& prompts) {
  const Layer layer(prompts.lengths, prompts.num_heads);
  recurrent_cuda(layer.rule(), 0, nullptr);
  const auto out = layer.out.download<uint16_t>();
  const auto state = layer.state.download<float>();
  const Layer chunked(prompts.lengths, prompts.num_heads);
  const Buffer workspace(chunked_sm90_workspace_size(chunked.rule()));
  // One kernel for tokens in few and one for the others, of which either leaves out the other's.
  recurrent_cuda(chunked.rule(), kDeltaChunkMinTokens, nullptr);
  run_chunked(chunked.rule(), workspace, nullptr);
  const auto chunked_out = chunked.out.download<uint16_t>();
  const auto chunked_state = chunked.state.download<float>();
  const Difference of_out = difference_of(chunked_out, out, [](const auto& values, size_t i) {
    return element_value(Element::kBFloat16, values.data(), static_cast<int64_t>(i));
  });
  const Difference of_state =
      difference_of(chunked_state, state, [](const auto& values, size_t i) { return values[i]; });
  // Roundings of the result that go another way, and the float32 arithmetic of the states.
  const bool passed = of_out.mean_square < 3e-4 && of_state.largest < 3e-4;
  std::printf("chunks of %-16s: %s out rms %.2e max %.2e, state rms %.2e max %.2e\n",
              prompts.name.c_str(),
              passed ? "PASS" : "FAIL",
              of_out.mean_square,
              of_out.largest,
              of_state.mean_square,
              of_state.largest);
  return passed ? 0 : 1;
}

// Side by side the kernels give the same bits, again and again.
int check_beside(int64_t num_sequences, int64_t tokens_each) {
  constexpr int kTimes = 8;
  std::vector<uint16_t> out[kTimes + 1];
  std::vector<float> state[kTimes + 1];
  for (int i = 0; i <= kTimes; ++i) {
    const Layer layer(num_sequences, tokens_each);
    Buffer workspace(chunked_sm90_workspace_size(layer.rule()));
    workspace.fill_bytes(0xff);
    run_chunked(layer.rule(), workspace, nullptr, i == 0 ? chunked_sm90 : chunked_beside_sm90);
    out[i] = layer.out.download<uint16_t>();
    state[i] = layer.state.download<float>();
  }
  bool passed = true;
  for (int i = 1; i <= kTimes; ++i) passed &= out[i] == out[0] && state[i] == state[0];
  std::printf("beside, %ld x %-6ld: %s\n",
              static_cast<long>(num_sequences),
              static_cast<long>(tokens_each),
              passed ? "PASS" : "FAIL");
  return passed ? 0 : 1;
}

// Of the same bits as a block for each head, with codes as well.
int check_resident(Element state_element) {
  bool passed = true;
  for (const int64_t num_sequences : {16, 64, 75}) {
    const Layer by_heads(num_sequences, 1, 1, false, state_element);
    const Layer resident(num_sequences, 1, 1, false, state_element);
    passed &= fits_gated_delta_net_resident_sm90(resident.net());
    for (int step = 0; step < 4; ++step) {
      gated_delta_net_sm90(by_heads.net(), nullptr, 1);
      gated_delta_net_resident_sm90(resident.net(), nullptr);
      passed &= by_heads.out.download<uint16_t>() == resident.out.download<uint16_t>();
    }
    gated_delta_net_sm90(by_heads.net_to_codes(), nullptr, 1);
    gated_delta_net_resident_sm90(resident.net_to_codes(), nullptr);
    passed &= by_heads.codes.download<uint8_t>() == resident.codes.download<uint8_t>() &&
              by_heads.state.download<uint8_t>() == resident.state.download<uint8_t>() &&
              by_heads.conv_state.download<uint8_t>() == resident.conv_state.download<uint8_t>();
  }
  std::printf("resident, states of %s: %s\n", name_of(state_element), passed ? "PASS" : "FAIL");
  return passed ? 0 : 1;
}

int check() {
  int failures = 0;
  for (const Element state : {Element::kFloat32, Element::kBFloat16}) {
    failures += check_resident(state);
  }
  for (const int64_t tokens : {100, 4100, 8192}) failures += check_beside(1, tokens);
  for (const int64_t tokens : {8, 64, 100, 8192})
    failures += check_chunks(equal_prompts(1, tokens));
  failures += check_chunks(equal_prompts(7, 300));
  failures += check_chunks(mixed_prompts());
  failures += check_chunks(with_more_heads(mixed_prompts()));
  return failures;
}

void time_decode(int64_t batch, int64_t tokens, Element state_element, const Roofs& roofs) {
  const bool keeps = tokens > 1;
  const int64_t bytes = batch * kHeads * kDim * kDim * bytes_of(state_element) * (1 + tokens);
  const int sets = std::max(2, sets_beyond_caches(bytes));
  const Layer layer(batch, tokens, sets, keeps, state_element);
  const auto print = [&](const char* what, auto&& work) {
    char line[64];
    std::snprintf(line,
                  sizeof line,
                  "%s %s, %ld x %ld",
                  name_of(state_element),
                  what,
                  static_cast<long>(batch),
                  static_cast<long>(tokens));
    report(line, time_call(work, false, sets), bytes, false, roofs);
  };
  print("layer",
        [&](gpuStream_t stream, int set) { gated_delta_net_sm90(layer.net(set), stream); });
  print("to codes", [&](gpuStream_t stream, int set) {
    gated_delta_net_sm90(layer.net_to_codes(set), stream);
  });
  if (fits_gated_delta_net_resident_sm90(layer.net())) {
    print("resident", [&](gpuStream_t stream, int set) {
      gated_delta_net_resident_sm90(layer.net(set), stream);
    });
    print("resident to codes", [&](gpuStream_t stream, int set) {
      gated_delta_net_resident_sm90(layer.net_to_codes(set), stream);
    });
  }
  print("recurrence",
        [&](gpuStream_t stream, int set) { recurrent_cuda(layer.rule(set), 0, stream); });
}

void time_prefill(const Prompts& prompts, const Roofs& roofs) {
  const Layer layer(prompts.lengths, prompts.num_heads);
  const Buffer workspace(chunked_sm90_workspace_size(layer.rule()));
  const Buffer convolved(layer.qkv.size());
  const auto print = [&](const char* what, int64_t bytes, const Work& work) {
    const std::string line = what + (", " + prompts.name);
    const double us = time_call([&](gpuStream_t stream, int) { work(stream); }, true);
    report(line.c_str(), us, bytes, false, roofs);
  };
  print("convolution", 2 * layer.qkv.size(), [&](gpuStream_t stream) {
    causal_conv1d_cuda(layer.convolution(convolved.data()), stream);
  });
  print("convolution, brief", 2 * layer.qkv.size(), [&](gpuStream_t stream) {
    causal_conv1d_brief_cuda(layer.convolution(convolved.data()), stream);
  });
  const int64_t records = workspace.size(), keys = layer.qkv.size() / 2;
  print("chunks, before states", records + keys, [&](gpuStream_t stream) {
    prepare_chunks_sm90(layer.rule(), workspace.data(), stream);
  });
  print("chunks, states", records + layer.qkv.size() + layer.out.size(), [&](gpuStream_t stream) {
    if (!advance_chunks_sm90(layer.rule(), workspace.data(), stream)) std::exit(1);
  });
  print("chunks", layer.qkv.size() + layer.out.size(), [&](gpuStream_t stream) {
    run_chunked(layer.rule(), workspace, stream);
  });
  print("chunks, beside", layer.qkv.size() + layer.out.size(), [&](gpuStream_t stream) {
    run_chunked(layer.rule(), workspace, stream, chunked_beside_sm90);
  });
  print("gated norm", 3 * layer.out.size(), [&](gpuStream_t stream) {
    rms_norm_gated_cuda(
        {layer.norm(convolved.data()), {}}, layer.num_tokens * layer.num_heads, stream);
  });
  print("gated norm to codes", 5 * layer.out.size() / 2, [&](gpuStream_t stream) {
    rms_norm_gated_cuda(
        {layer.norm(nullptr), layer.result_codes()}, layer.num_tokens * layer.num_heads, stream);
  });
}

// The ways that a decode of `batch` sequences can be cut.
void time_ways(int64_t batch, Element state_element, const Roofs& roofs) {
  const int64_t bytes = 2 * batch * kHeads * kDim * kDim * bytes_of(state_element);
  const int sets = std::max(2, sets_beyond_caches(bytes));
  const Layer layer(batch, 1, sets, false, state_element);
  const auto print = [&](const char* what, int splits, auto&& work) {
    char line[64];
    std::snprintf(line,
                  sizeof line,
                  "%s %s, %ld in %d",
                  name_of(state_element),
                  what,
                  static_cast<long>(batch),
                  splits);
    report(line, time_call(work, false, sets), bytes, false, roofs);
  };
  for (const int splits : {1, 2, 4}) {
    print("layer", splits, [&](gpuStream_t stream, int set) {
      gated_delta_net_sm90(layer.net(set), stream, splits);
    });
    print("recurrence", splits, [&](gpuStream_t stream, int set) {
      recurrent_cuda(layer.rule(set), 0, stream, splits);
    });
  }
}

void time_ways() {
  const Roofs roofs = measure_roofs();
  for (const Element state_element : {Element::kFloat32, Element::kBFloat16}) {
    for (const int64_t batch : {1, 4, 8, 16, 32, 64, 256}) time_ways(batch, state_element, roofs);
  }
}

void time_decodes() {
  const Roofs roofs = measure_roofs();
  for (const Element state_element : {Element::kFloat32, Element::kBFloat16}) {
    for (const int64_t batch : {1, 8, 16, 32, 64, 256}) {
      time_decode(batch, 1, state_element, roofs);
    }
    for (const int64_t batch : {1, 8, 64}) time_decode(batch, 4, state_element, roofs);
  }
}

void time_prefills() {
  const Roofs roofs = measure_roofs();
  for (const Prompts& prompts : {equal_prompts(1, 8192),
                                 equal_prompts(8, 1024),
                                 equal_prompts(1, 1024),
                                 mixed_prompts(),
                                 with_more_heads(equal_prompts(1, 8192)),
                                 with_more_heads(mixed_prompts())}) {
    time_prefill(prompts, roofs);
  }
}

}  // namespace
}  // namespace atom::bench

int main(int argc, char** argv) {
  const std::string_view part = argc > 1 ? argv[1] : "";
  const int failures = part.empty() || part == "check" ? atom::bench::check() : 0;
  if (part.empty() || part == "decode") atom::bench::time_decodes();
  if (part.empty() || part == "prefill") atom::bench::time_prefills();
  if (part == "ways") atom::bench::time_ways();
  return failures == 0 ? 0 : 1;
}
