// A golden case as a checkpoint in a folder that goes with it.
#pragma once

#include <string>

#include "models/registry.h"
#include "tests/support/golden_case.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {

class WrittenCase {
 public:
  explicit WrittenCase(const std::string& case_folder) : golden_(load_golden_case(case_folder)) {
    if (golden_.ok()) written_ = materialize_checkpoint(case_folder, folder_.path());
    if (written_.ok()) config_ = load_model_config(folder_.path());
  }

  // Why it is skipped.
  std::string missing() const {
    if (!find_architecture(golden_->architecture).ok()) {
      return golden_->architecture + " is not registered";
    }
    return config_.status().code() == StatusCode::kUnimplemented ? config_.status().message() : "";
  }
  Status status() const {
    return !golden_.ok() ? golden_.status() : !written_.ok() ? written_ : config_.status();
  }

  const GoldenCase& golden() const { return *golden_; }
  const ModelConfig& config() const { return *config_; }
  std::string path() const { return folder_.path(); }
  bool routes() const { return config_->extension().has("num_experts_per_tok"); }

 private:
  TemporaryFolder folder_;
  Result<GoldenCase> golden_;
  Status written_;
  Result<ModelConfig> config_ = not_found("no checkpoint");
};

}  // namespace atom
