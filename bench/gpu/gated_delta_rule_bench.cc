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
constexpr int64_t kChannels = (2 * kKeyHeads + kHeads) * kDim, kValues = kHeads * kDim;
constexpr int64_t kStateSize = kHeads * kDim * kDim;

const char* name_of(Element state_element) {
  return state_element == Element::kFloat32 ? "float32" : "bfloat16";
}

// Sequences of as many tokens each, after a history, in `num_sets` sets of slots. With `keeps` the
// state behind each token goes to a slot of its own.
class Layer {
 public:
  Layer(int64_t num_sequences,
        int64_t tokens_each,
        int num_sets = 1,
        bool keeps = false,
        Element element_of_state = Element::kFloat32)
      : num_tokens(num_sequences * tokens_each),
        num_slots(num_sequences * (keeps ? tokens_each + 1 : 1)),
        state_element(element_of_state),
        qkv(num_tokens * kChannels * 2),
        z(num_tokens * kValues * 2),
        ba(num_tokens * 2 * kHeads * 2),
        out(num_tokens * kValues * 2),
        conv_weight(kWidth * kChannels * 4),
        gates(2 * kHeads * 4),
        norm_weight(kDim * 4),
        conv_state(num_slots * num_sets * (kWidth - 1) * kChannels * 2),
        state(num_slots * num_sets * state_bytes()),
        indices((3 * num_sequences + 1 + num_tokens) * 4),
        codes(num_tokens * (kValues + 4 * kHeads)) {
    fill_random(qkv.data(), Element::kBFloat16, num_tokens * kChannels, 1.0f, 1);
    fill_random(z.data(), Element::kBFloat16, num_tokens * kValues, 2.0f, 2);
    fill_random(ba.data(), Element::kBFloat16, num_tokens * 2 * kHeads, 3.0f, 3);
    fill_random(conv_weight.data(), Element::kFloat32, kWidth * kChannels, 1.0f, 4);
    fill_random(norm_weight.data(), Element::kFloat32, kDim, 1.0f, 5);
    fill_random(conv_state.data(), Element::kBFloat16, conv_state.size() / 2, 1.0f, 6);
    fill_random(state.data(), state_element, num_slots * num_sets * kStateSize, 0.5f, 7);
    out.fill_bytes(0xff);
    std::vector<float> host_gates(2 * kHeads, 0.5f);
    for (int64_t head = 0; head < kHeads; ++head) {
      host_gates[head] = 2.0f - 9.0f * static_cast<float>(head) / kHeads;
    }
    gates.upload(host_gates);
    std::vector<int32_t> host;
    for (int64_t s = 0; s <= num_sequences; ++s) {
      host.push_back(static_cast<int32_t>(s * tokens_each));
    }
    for (int64_t s = 0; s < num_sequences; ++s)
      host.push_back(static_cast<int32_t>(tokens_each + 5));
    for (int64_t s = 0; s < num_sequences; ++s) {
      host.push_back(static_cast<int32_t>(s * (num_slots / num_sequences)));
    }
    for (int64_t t = 0; t < num_tokens; ++t) {
      const int64_t sequence = t / tokens_each;
      host.push_back(static_cast<int32_t>(t + sequence + 1));
    }
    indices.upload(host);
    batch = {.query_start = indices.data<int32_t>(),
             .seq_lens = indices.data<int32_t>((num_sequences + 1) * 4),
             .state_slots = indices.data<int32_t>((2 * num_sequences + 1) * 4),
             .token_slots = keeps ? indices.data<int32_t>((3 * num_sequences + 1) * 4) : nullptr,
             .num_sequences = num_sequences,
             .num_tokens = num_tokens,
             .num_slots = num_slots,
             .max_queries = tokens_each};
  }

  GatedDeltaRuleArgs rule(int set = 0) const {
    return {.qkv = qkv.data(),
            .a = ba.data(),
            .b = ba.data(kHeads * 2),
            .a_log = gates.data<float>(),
            .dt_bias = gates.data<float>(kHeads * 4),
            .state = state.data(set * num_slots * state_bytes()),
            .out = out.data(),
            .batch = batch,
            .qkv_stride = kChannels,
            .out_stride = kValues,
            .a_stride = 2 * kHeads,
            .b_stride = 2 * kHeads,
            .num_k_heads = kKeyHeads,
            .num_v_heads = kHeads,
            .head_k_dim = kDim,
            .head_v_dim = kDim,
            .element = Element::kBFloat16,
            .state_element = state_element};
  }
  // A head is a group.
  QuantizeArgs result_codes() const {
    return {.x = nullptr,
            .values = codes.data<uint8_t>(),
            .scales = codes.data<float>(num_tokens * kValues),
            .static_scale = nullptr,
            .exponents = nullptr,
            .x_stride = 0,
            .values_stride = kValues,
            .size = kValues,
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
            .conv_state = conv_state.data(set * num_slots * (kWidth - 1) * kChannels * 2),
            .z = z.data(),
            .norm_weight = norm_weight.data<float>(),
            .z_stride = kValues,
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
            .x_stride = kChannels,
            .out_stride = kChannels,
            .num_channels = kChannels,
            .kernel_size = kWidth,
            .element = Element::kBFloat16};
  }
  RmsNormGatedArgs norm(void* to) const {
    return {.x = out.data(),
            .gate = z.data(),
            .weight = norm_weight.data<float>(),
            .out = to,
            .x_stride = kValues,
            .gate_stride = kValues,
            .out_stride = kValues,
            .num_heads = kHeads,
            .size = kDim,
            .eps = 1e-6f,
            .element = Element::kBFloat16};
  }

  // Of a sequence.
  int64_t state_bytes() const { return kStateSize * bytes_of(state_element); }

  int64_t num_tokens, num_slots;
  Element state_element;
  Buffer qkv, z, ba, out, conv_weight, gates, norm_weight, conv_state, state, indices, codes;
  StateBatchArgs batch;
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

int check_chunks(int64_t num_sequences, int64_t tokens_each) {
  const Layer layer(num_sequences, tokens_each);
  recurrent_cuda(layer.rule(), 0, nullptr);
  const auto out = layer.out.download<uint16_t>();
  const auto state = layer.state.download<float>();
  Layer chunked(num_sequences, tokens_each);
  const Buffer workspace(chunked_sm90_workspace_size(chunked.rule()));
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
  std::printf("chunks of %ld x %-6ld: %s out rms %.2e max %.2e, state rms %.2e max %.2e\n",
              static_cast<long>(num_sequences),
              static_cast<long>(tokens_each),
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
  for (const int64_t tokens : {8, 64, 100, 8192}) failures += check_chunks(1, tokens);
  failures += check_chunks(7, 300);
  return failures;
}

void time_decode(int64_t batch, int64_t tokens, Element state_element, const Roofs& roofs) {
  const bool keeps = tokens > 1;
  const int64_t bytes = batch * kStateSize * bytes_of(state_element) * (1 + tokens);
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

void time_prefill(int64_t num_sequences, int64_t tokens, const Roofs& roofs) {
  const Layer layer(num_sequences, tokens);
  const Buffer workspace(chunked_sm90_workspace_size(layer.rule()));
  const Buffer convolved(layer.qkv.size());
  const auto print = [&](const char* what, int64_t bytes, const Work& work) {
    char line[64];
    std::snprintf(line,
                  sizeof line,
                  "%s, %ld x %ld",
                  what,
                  static_cast<long>(num_sequences),
                  static_cast<long>(tokens));
    const double us = time_call([&](gpuStream_t stream, int) { work(stream); }, true);
    report(line, us, bytes, false, roofs);
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
    rms_norm_gated_cuda({layer.norm(convolved.data()), {}}, layer.num_tokens * kHeads, stream);
  });
  print("gated norm to codes", 5 * layer.out.size() / 2, [&](gpuStream_t stream) {
    rms_norm_gated_cuda(
        {layer.norm(nullptr), layer.result_codes()}, layer.num_tokens * kHeads, stream);
  });
}

// The ways that a decode of `batch` sequences can be cut.
void time_ways(int64_t batch, Element state_element, const Roofs& roofs) {
  const int64_t bytes = 2 * batch * kStateSize * bytes_of(state_element);
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
  time_prefill(1, 8192, roofs);
  time_prefill(8, 1024, roofs);
  time_prefill(1, 1024, roofs);
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
