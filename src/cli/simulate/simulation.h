// `atom plan --simulate`: the step model applied to a configuration, on one node and on many.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/simulate/step_model.h"
#include "config/resolve.h"

namespace atom::cli::simulate {

struct Question {
  int32_t sequences_per_gpu = 32;
  int32_t context = 4096;  // tokens of each
  std::string inputs;      // a JSON object that overrules some of Inputs; empty: none
};

struct SimulatedLayout {
  Layout layout;
  double sequences = 0;  // of all GPUs
  StepTime time;
  bool fits = false;
  std::string refusal;  // not empty: the model cannot be laid out so
};

struct Simulation {
  Inputs inputs;
  Question question;
  std::vector<SimulatedLayout> layouts;
};

// Layers shared by the GPUs of a node, and for a model with experts also 1 to 64 nodes whose GPUs
// have sequences of their own and share out the experts. Builds the model without memory.
Result<Simulation> simulate(const ResolvedConfig& config, const Question& question);

// All assumptions, then a row for each layout.
std::string simulation_text(const Simulation& simulation);
nlohmann::ordered_json simulation_json(const Simulation& simulation);

// Overrules fields of `inputs`, each a finite number above zero, by the names of Inputs.
Status apply_inputs(const std::string& json, Inputs* inputs);

}  // namespace atom::cli::simulate
