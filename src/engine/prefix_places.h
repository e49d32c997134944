// Which cores have computed which beginnings of prompts, as far as the front end can tell: what it
// gave to a core is there, unless the core has needed the room meanwhile. Bounded memory; of one
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace atom {

// Tokens of a prompt that one hash stands for, together with all before them.
inline constexpr int64_t kPrefixChunk = 64;

// A hash for each whole chunk of a prompt. Prompts share nothing under different salts.
std::vector<uint64_t> prefix_hashes(std::span<const int32_t> token_ids, const std::string& salt);

class PrefixPlaces {
 public:
  // Chunks that are remembered, at most twice as many; the oldest are forgotten.
  explicit PrefixPlaces(size_t num_chunks = 32768) : num_chunks_(num_chunks) {}

  // The core, one of at most 64, is given a prompt of these hashes.
  void note(int core, std::span<const uint64_t> prefix);
  // Tokens of the longest beginning that the core has.
  int64_t num_cached_tokens(int core, std::span<const uint64_t> prefix) const;
  // The core has lost everything.
  void forget(int core);

 private:
  using Cores = uint64_t;  // a bit each

  Cores cores_of(uint64_t hash) const;

  const size_t num_chunks_;
  std::unordered_map<uint64_t, Cores> recent_;
  std::unordered_map<uint64_t, Cores> older_;  // what recent_ was before it was full
};

}  // namespace atom
