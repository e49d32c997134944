#include "cli/simulate/simulation.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/human.h"
#include "cli/table.h"
#include "config/attention_flops.h"
#include "runner/local_ranks.h"
#include "runner/model_source.h"

namespace atom::cli::simulate {
namespace {

using Json = nlohmann::ordered_json;

struct Field {
  const char* name;
  double Inputs::*member;
  const char* meaning;
};

constexpr Field kFields[] = {
    {"memory_bytes", &Inputs::memory_bytes, "memory of a GPU"},
    {"memory_bandwidth", &Inputs::memory_bandwidth, "bytes/s that a kernel reads (measured, H200)"},
    {"flops", &Inputs::flops, "FLOP/s of multiplications in FP8 (cuBLASLt, measured, H200)"},
    {"flops16", &Inputs::flops16, "the same in bfloat16 (cuBLASLt, measured, H200)"},
    {"linear_efficiency",
     &Inputs::linear_efficiency,
     "linears, of the bandwidth (fitted to steps)"},
    {"expert_efficiency",
     &Inputs::expert_efficiency,
     "experts, of the bandwidth (fitted to steps)"},
    {"attention_efficiency",
     &Inputs::attention_efficiency,
     "attention, of the bandwidth (measured)"},
    {"attention_flop_efficiency",
     &Inputs::attention_flop_efficiency,
     "attention, of flops, its products being 16 bits wide (assumed)"},
    {"expert_flop_efficiency", &Inputs::expert_flop_efficiency, "experts, of flops (assumed)"},
    {"layer_seconds", &Inputs::layer_seconds, "of a layer, whatever the batch (fitted to steps)"},
    {"expert_seconds", &Inputs::expert_seconds, "a layer's experts beyond that (measured)"},
    {"gpus_per_node", &Inputs::gpus_per_node, "GPUs that one switch connects"},
    {"node_bandwidth",
     &Inputs::node_bandwidth,
     "bytes/s of a GPU to others of its node (an all-reduce of 8 MiB of two, measured)"},
    {"network_bandwidth",
     &Inputs::network_bandwidth,
     "bytes/s of a GPU to other nodes (0.8 of 400 Gbit/s, assumed)"},
    {"all_reduce_seconds",
     &Inputs::all_reduce_seconds,
     "a small all-reduce of two in a graph (measured)"},
    {"all_reduce_rank_seconds",
     &Inputs::all_reduce_rank_seconds,
     "each further rank of a small all-reduce (of four in a graph, measured)"},
    {"packet_bandwidth",
     &Inputs::packet_bandwidth,
     "bytes/s of a GPU's packets, which have twice the bytes of a small all-reduce (measured)"},
    {"shared_sum_seconds",
     &Inputs::shared_sum_seconds,
     "each other rank of a larger all-reduce (of two and of four, measured)"},
    {"node_exchange_seconds",
     &Inputs::node_exchange_seconds,
     "a small dispatch or combine in a node (assumed)"},
    {"network_exchange_seconds",
     &Inputs::network_exchange_seconds,
     "a small dispatch or combine over nodes (assumed)"},
    {"dispatch_bytes", &Inputs::dispatch_bytes, "an activation on its way to an expert (FP8)"},
    {"combine_bytes", &Inputs::combine_bytes, "an activation on its way back (bfloat16)"},
};

constexpr double kMemoryShare = 0.9;  // that an engine takes

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// What the model is on one of so many ranks that share its layers.
Result<RankModel> rank_model(const ResolvedConfig& config, int32_t tensor_size) {
  ResolvedConfig of_ranks = config;
  of_ranks.engine.parallel = {};
  of_ranks.engine.parallel.tensor_parallel_size = tensor_size;
  ASSIGN_OR_RETURN(
      const BuiltModel built,
      build_model(of_ranks, {}, parallel_context(of_ranks.engine.parallel, /*rank=*/0)));
  RankModel model;
  model.num_layers = config.model.num_hidden_layers;
  model.hidden_size = config.model.hidden_size;
  model.kv_bytes = static_cast<double>(built.storage.bytes_per_token());
  model.attention_flops = static_cast<double>(attention_pair_flops(config.model).decode) *
                          config.model.num_hidden_layers / tensor_size;
  std::string last_layer;
  for (const NamedParameter& named : built.model->named_parameters()) {
    const auto bytes = static_cast<double>(named.parameter->num_bytes());
    // Scales and packed values are counted as they are stored.
    const auto weights = static_cast<double>(named.parameter->shape().num_elements());
    const size_t experts = named.name.find(".experts.");
    if (contains(named.name, "embed_tokens") && !config.model.tie_word_embeddings) {
      model.other_bytes += bytes;
    } else if (experts != std::string::npos) {
      model.routed_bytes += bytes * tensor_size;
      model.routed_weights += weights * tensor_size;
      const std::string layer = named.name.substr(0, experts);
      if (layer != last_layer) ++model.num_expert_layers;
      last_layer = layer;
    } else {
      model.dense_bytes += bytes;
      model.dense_weights += weights;
    }
  }
  return model;
}

// The first of the keys by which configurations count experts, or 0.
Result<double> count_of(const ModelConfig& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    ASSIGN_OR_RETURN(const int64_t count, config.extension().get_int(key, 0, 1 << 20, 0));
    if (count > 0) return static_cast<double>(count);
  }
  return 0.0;
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f}", seconds * 1e3);
}

}  // namespace

Status apply_inputs(const std::string& text, Inputs* inputs) {
  if (text.empty()) return {};
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return invalid_argument("--simulate-inputs: expected a JSON object of numbers");
  }
  for (const auto& [key, value] : json.items()) {
    const Field* found = nullptr;
    for (const Field& field : kFields) {
      if (key == field.name) found = &field;
    }
    if (found == nullptr) {
      return invalid_argument("--simulate-inputs: unknown '{}'; --simulate prints the names", key);
    }
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!std::isfinite(number) || number <= 0) {
      return invalid_argument("--simulate-inputs: '{}' is no finite number above 0", key);
    }
    inputs->*found->member = number;
  }
  return {};
}

Result<Simulation> simulate(const ResolvedConfig& config, const Question& question) {
  Simulation simulation{.inputs = {}, .question = question, .layouts = {}};
  const Inputs& in = simulation.inputs;
  RETURN_IF_ERROR(apply_inputs(question.inputs, &simulation.inputs));
  if (in.gpus_per_node != std::floor(in.gpus_per_node) || in.gpus_per_node > 1024) {
    return invalid_argument("--simulate-inputs: 'gpus_per_node' is no whole number up to 1024");
  }
  const auto of_node = static_cast<int32_t>(in.gpus_per_node);
  ASSIGN_OR_RETURN(
      const double num_experts,
      count_of(config.model, {"n_routed_experts", "num_experts", "num_local_experts"}));
  ASSIGN_OR_RETURN(const double per_token,
                   count_of(config.model, {"num_experts_per_tok", "experts_per_token"}));
  const auto add = [&](const Layout& layout, const Result<RankModel>& model) {
    SimulatedLayout& added = simulation.layouts.emplace_back();
    added.layout = layout;
    added.sequences = static_cast<double>(layout.num_gpus) * question.sequences_per_gpu;
    if (!model.ok()) {
      added.refusal = model.status().message();
      return;
    }
    RankModel asked = *model;
    if (asked.num_expert_layers > 0) {
      asked.num_experts = num_experts;
      asked.experts_per_token = per_token;
    }
    added.time = simulate_step(in, asked, layout, added.sequences, question.context);
    added.fits = added.time.memory_bytes <= kMemoryShare * in.memory_bytes;
  };
  add({fmt::format("TP{}", of_node), of_node, of_node, 1}, rank_model(config, of_node));
  const Result<RankModel> whole = rank_model(config, 1);
  RETURN_IF_ERROR(whole.status());
  if (whole->num_expert_layers == 0 || num_experts == 0 || per_token == 0) return simulation;
  for (int32_t nodes = 1; nodes <= 64; nodes *= 2) {
    const int64_t gpus = int64_t{nodes} * of_node;
    add({fmt::format("DP{}+EP{}", gpus, gpus), gpus, 1, gpus}, whole);
  }
  return simulation;
}

std::string simulation_text(const Simulation& simulation) {
  const Question& question = simulation.question;
  std::string text = fmt::format(
      "A decode step of {} sequences a GPU, {} tokens of context each, as a sum of parts that do "
      "not overlap; tokens go to all experts evenly. Nothing here was run.\n\n",
      question.sequences_per_gpu,
      question.context);
  Table assumptions({{"assumed", Table::Align::kLeft},
                     {"value", Table::Align::kRight},
                     {"what it is", Table::Align::kLeft}});
  for (const Field& field : kFields) {
    const double value = simulation.inputs.*field.member;
    assumptions.add_row({field.name, fmt::format("{:.4g}", value), field.meaning});
  }
  Table table({{"layout", Table::Align::kLeft},
               {"GPUs", Table::Align::kRight},
               {"linears", Table::Align::kRight},
               {"experts", Table::Align::kRight},
               {"attention", Table::Align::kRight},
               {"launches", Table::Align::kRight},
               {"collectives", Table::Align::kRight},
               {"step (ms)", Table::Align::kRight},
               {"tokens/s/GPU", Table::Align::kRight},
               {"memory of a GPU", Table::Align::kLeft}});
  std::string refusals;
  for (const SimulatedLayout& row : simulation.layouts) {
    if (!row.refusal.empty()) {
      refusals += fmt::format("{}: {}\n", row.layout.name, row.refusal);
      continue;
    }
    const StepTime& time = row.time;
    table.add_row({row.layout.name,
                   std::to_string(row.layout.num_gpus),
                   milliseconds(time.linears),
                   milliseconds(time.experts),
                   milliseconds(time.attention),
                   milliseconds(time.launches),
                   milliseconds(time.collectives),
                   milliseconds(time.total()),
                   fmt::format("{:.0f}", question.sequences_per_gpu / time.total()),
                   human_bytes(static_cast<int64_t>(time.memory_bytes)) +
                       (row.fits ? "" : ", does not fit")});
  }
  return text + assumptions.to_string() + "\n" + table.to_string() + refusals;
}

nlohmann::ordered_json simulation_json(const Simulation& simulation) {
  Json inputs = Json::object();
  for (const Field& field : kFields) inputs[field.name] = simulation.inputs.*field.member;
  Json layouts = Json::array();
  for (const SimulatedLayout& row : simulation.layouts) {
    Json entry = {{"layout", row.layout.name}, {"num_gpus", row.layout.num_gpus}};
    if (!row.refusal.empty()) {
      entry["refusal"] = row.refusal;
    } else {
      const StepTime& time = row.time;
      entry.update({{"sequences", row.sequences},
                    {"linears", time.linears},
                    {"experts", time.experts},
                    {"attention", time.attention},
                    {"launches", time.launches},
                    {"collectives", time.collectives},
                    {"step", time.total()},
                    {"memory_bytes", time.memory_bytes},
                    {"fits", row.fits}});
    }
    layouts.push_back(std::move(entry));
  }
  return {{"sequences_per_gpu", simulation.question.sequences_per_gpu},
          {"context", simulation.question.context},
          {"inputs", std::move(inputs)},
          {"layouts", std::move(layouts)}};
}

}  // namespace atom::cli::simulate
