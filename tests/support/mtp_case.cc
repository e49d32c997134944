#include "tests/support/mtp_case.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/support/stored_tensor.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

Json normal(const std::vector<int64_t>& shape, double mean, double std) {
  return {{"dtype", "bfloat16"},
          {"shape", shape},
          {"gen", {{"kind", "normal"}, {"mean", mean}, {"std", std}}}};
}

bool is_indexer(const std::string& name) {
  return name.find(".indexer.") != std::string::npos;
}

// The last layer's tensors once more, under the next number, and what is around them.
Json with_layer(const Json& tensors, int64_t num_layers, int64_t hidden_size) {
  Json result = tensors;
  const std::string last = "model.layers." + std::to_string(num_layers - 1) + ".";
  const std::string added = "model.layers." + std::to_string(num_layers) + ".";
  for (const auto& [name, tensor] : tensors.items()) {
    if (name.starts_with(last)) result[added + name.substr(last.size())] = tensor;
  }
  for (const char* norm : {"enorm", "hnorm", "shared_head.norm"}) {
    result[added + norm + ".weight"] = normal({hidden_size}, 1, 0.2);
  }
  const double std = 1 / std::sqrt(2.0 * static_cast<double>(hidden_size));
  result[added + "eh_proj.weight"] = normal({hidden_size, 2 * hidden_size}, 0, std);
  return result;
}

}  // namespace

Status materialize_with_mtp(const std::string& case_folder,
                            const std::string& out_folder,
                            Indexers indexers) {
  ASSIGN_OR_RETURN(Json config, read_json_file(case_folder + "/config.json"));
  ASSIGN_OR_RETURN(Json checkpoint, read_json_file(case_folder + "/checkpoint.json"));
  Json tensors = with_layer(
      checkpoint.at("tensors"), config.at("num_hidden_layers"), config.at("hidden_size"));
  config["num_nextn_predict_layers"] = 1;
  if (indexers == Indexers::kDropped) {
    config["architectures"] = {"DeepseekV3ForCausalLM"};
    Json kept = Json::object();
    for (const auto& [name, tensor] : tensors.items()) {
      if (!is_indexer(name)) kept[name] = tensor;
    }
    tensors = kept;
  }
  checkpoint["tensors"] = tensors;
  const TemporaryFolder described;
  RETURN_IF_ERROR(write_text(described.file("config.json"), config.dump()));
  RETURN_IF_ERROR(write_text(described.file("checkpoint.json"), checkpoint.dump()));
  return materialize_checkpoint(described.path(), out_folder);
}

}  // namespace atom
