#include "engine/prefix_places.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace atom {
namespace {

// The finalizer of splitmix64, over what came before and one more value.
uint64_t mix(uint64_t hash, uint64_t value) {
  uint64_t x = hash + 0x9e3779b97f4a7c15u + value;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<uint64_t> prefix_hashes(std::span<const int32_t> token_ids, const std::string& salt) {
  uint64_t hash = salt.size();
  for (const char c : salt) hash = mix(hash, static_cast<unsigned char>(c));
  std::vector<uint64_t> hashes;
  for (int64_t i = 0; i < std::ssize(token_ids); ++i) {
    hash = mix(hash, static_cast<uint32_t>(token_ids[i]));
    if ((i + 1) % kPrefixChunk == 0) hashes.push_back(hash);
  }
  return hashes;
}

PrefixPlaces::Cores PrefixPlaces::cores_of(uint64_t hash) const {
  Cores cores = 0;
  for (const auto* map : {&recent_, &older_}) {
    const auto found = map->find(hash);
    if (found != map->end()) cores |= found->second;
  }
  return cores;
}

void PrefixPlaces::note(int core, std::span<const uint64_t> prefix) {
  CHECK(core < 64);
  // A prompt's first chunks are those that others may share.
  for (const uint64_t hash : prefix.first(std::min(prefix.size(), num_chunks_))) {
    const Cores cores = cores_of(hash) | Cores{1} << core;
    if (recent_.size() >= num_chunks_) older_ = std::exchange(recent_, {});
    recent_[hash] = cores;
  }
}

int64_t PrefixPlaces::num_cached_tokens(int core, std::span<const uint64_t> prefix) const {
  int64_t num_tokens = 0;
  for (const uint64_t hash : prefix) {
    if ((cores_of(hash) >> core & 1) == 0) break;
    num_tokens += kPrefixChunk;
  }
  return num_tokens;
}

void PrefixPlaces::forget(int core) {
  for (auto* map : {&recent_, &older_}) {
    for (auto& [hash, cores] : *map) cores &= ~(Cores{1} << core);
  }
}

}  // namespace atom
