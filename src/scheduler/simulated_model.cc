#include "scheduler/simulated_model.h"

#include <algorithm>

namespace atom::simulated_model {

namespace {

uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

bool is_end(int32_t token_id,
            const SamplingParams& sampling,
            const std::vector<int32_t>& eos_token_ids) {
  return std::ranges::count(sampling.stop_token_ids, token_id) > 0 ||
         (!sampling.ignore_eos && std::ranges::count(eos_token_ids, token_id) > 0);
}

}  // namespace

uint64_t start(const std::string& salt) {
  uint64_t hash = 0x5eed;
  for (const char c : salt) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

uint64_t extend(uint64_t prefix_hash, int32_t token_id) {
  return mix(prefix_hash ^ mix(static_cast<uint64_t>(token_id) + 1));
}

int32_t next_token(uint64_t prefix_hash,
                   const SamplingParams& sampling,
                   const std::vector<int32_t>& eos_token_ids,
                   int32_t num_outputs,
                   int32_t vocab_size) {
  uint64_t draw = mix(prefix_hash ^ mix(*sampling.seed));
  auto token_id = static_cast<int32_t>(draw % vocab_size);
  while (num_outputs < sampling.min_tokens && is_end(token_id, sampling, eos_token_ids)) {
    draw = mix(draw);
    token_id = static_cast<int32_t>(draw % vocab_size);
  }
  return token_id;
}

std::pair<std::vector<int32_t>, FinishReason> whole_answer(
    const std::vector<int32_t>& prompt,
    const SamplingParams& sampling,
    const std::vector<int32_t>& eos_token_ids,
    int32_t vocab_size) {
  uint64_t hash = start(sampling.cache_salt);
  for (const int32_t token_id : prompt) hash = extend(hash, token_id);
  std::vector<int32_t> answer;
  while (static_cast<int32_t>(answer.size()) < sampling.max_tokens) {
    const auto num_outputs = static_cast<int32_t>(answer.size());
    const int32_t token_id = next_token(hash, sampling, eos_token_ids, num_outputs, vocab_size);
    answer.push_back(token_id);
    hash = extend(hash, token_id);
    if (num_outputs >= sampling.min_tokens && is_end(token_id, sampling, eos_token_ids)) {
      return {std::move(answer), FinishReason::kStop};
    }
  }
  return {std::move(answer), FinishReason::kLength};
}

}  // namespace atom::simulated_model
