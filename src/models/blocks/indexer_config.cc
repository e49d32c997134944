#include "models/blocks/indexer_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace atom {
namespace {

constexpr int64_t kMaxIndexerHeads = 1024;
constexpr int64_t kMaxIndexerHeadDim = 512;  // ops/indexer_norm_rope_cache
constexpr int64_t kMaxSelected = 1 << 20;
constexpr int64_t kMaxIndexedLayers = 4096;

Result<DsaOptions> read_indexer_sizes(const ConfigReader& reader,
                                      const MlaOptions& attention,
                                      bool interleaved) {
  if (attention.q_lora_rank == 0) {
    return invalid_argument(
        "config.json: missing 'q_lora_rank' (the width of the latent that the indexer reads)");
  }
  DsaOptions options;
  options.q_lora_rank = attention.q_lora_rank;
  ASSIGN_OR_RETURN(options.num_heads,
                   reader.require_int("index_n_heads", 1, kMaxIndexerHeads, "the indexer's heads"));
  ASSIGN_OR_RETURN(options.head_dim,
                   reader.require_int("index_head_dim",
                                      attention.sizes.rope_dim,
                                      kMaxIndexerHeadDim,
                                      "the width of the indexer's heads"));
  ASSIGN_OR_RETURN(
      options.top_k,
      reader.require_int("index_topk", 1, kMaxSelected, "the tokens that a query attends to"));
  ASSIGN_OR_RETURN(options.interleaved, reader.get_bool("indexer_rope_interleave", interleaved));
  return options;
}

// One word, or one letter, for each layer; drafting layers may follow.
Result<std::vector<bool>> are_full(const ConfigReader& reader,
                                   const char* key,
                                   const std::vector<std::string>& modes,
                                   size_t num_layers) {
  const Json& found = *reader.find(key);
  if (modes.size() < num_layers) {
    return reader.wrong(key, found, fmt::format("a mode for each of the {} layers", num_layers));
  }
  std::vector<bool> has_indexer;
  for (size_t layer = 0; layer < num_layers; ++layer) {
    const std::string& mode = modes[layer];
    if (mode != "full" && mode != "F" && mode != "shared" && mode != "S") {
      return reader.wrong(key, found, "layers that are \"full\" (F) or \"shared\" (S)");
    }
    has_indexer.push_back(mode == "full" || mode == "F");
  }
  if (!has_indexer.front()) {
    return reader.wrong(key, found, "a first layer that is \"full\": it has none before it");
  }
  return has_indexer;
}

Result<std::vector<bool>> read_indexer_layers(const ConfigReader& reader, int64_t num_layers) {
  const auto count = static_cast<size_t>(num_layers);
  ASSIGN_OR_RETURN(const int64_t frequency,
                   reader.get_int("index_topk_freq", 1, kMaxIndexedLayers, 1));
  ASSIGN_OR_RETURN(const int64_t offset,
                   reader.get_int("index_skip_topk_offset", 1, kMaxIndexedLayers, 2));
  for (const char* key : {"indexer_types", "index_topk_pattern"}) {
    const Json* found = reader.find(key);
    if (found == nullptr) continue;
    if (!found->is_string()) {
      ASSIGN_OR_RETURN(const auto modes, reader.get_strings(key, kMaxIndexedLayers));
      return are_full(reader, key, modes, count);
    }
    std::vector<std::string> letters;
    for (const char letter : found->get<std::string>()) letters.emplace_back(1, letter);
    return are_full(reader, key, letters, count);
  }
  std::vector<bool> has_indexer;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    has_indexer.push_back(std::max<int64_t>(layer - offset + 1, 0) % frequency == 0);
  }
  return has_indexer;
}

}  // namespace

bool IndexerConfig::has_shared() const {
  return std::ranges::find(has_indexer, false) != has_indexer.end();
}

MlaOptions IndexerConfig::with_indexer(MlaOptions attention, int layer) const {
  if (has_indexer.empty()) return attention;
  attention.shares_selection = !has_indexer[layer];
  if (has_indexer[layer]) attention.indexer = options;
  return attention;
}

Result<IndexerConfig> read_indexer_config(const ModelConfig& config,
                                          const MlaOptions& attention,
                                          bool interleaved) {
  const ConfigReader reader = config.extension();
  IndexerConfig indexers;
  ASSIGN_OR_RETURN(indexers.options, read_indexer_sizes(reader, attention, interleaved));
  ASSIGN_OR_RETURN(indexers.has_indexer, read_indexer_layers(reader, config.num_hidden_layers));
  return indexers;
}

}  // namespace atom
