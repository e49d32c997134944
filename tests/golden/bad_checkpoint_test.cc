// Of every golden case and every kind of tensor in it: a missing, a surplus and a misshapen one are
// named, by the account that `atom inspect` prints and by loading.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "base/thread_pool.h"
#include "loader/checkpoint.h"
#include "loader/load_model.h"
#include "models/registry.h"
#include "runner/model_source.h"
#include "tests/golden/header_folder.h"

namespace atom {
namespace {

// Names that differ in numbers alone are of one kind.
std::string kind_of(const std::string& name) {
  static const std::regex number("[0-9]+");
  return std::regex_replace(name, number, "#");
}

class Folder {
 public:
  explicit Folder(const std::string& case_folder) {
    Result<std::unique_ptr<HeaderFolder>> opened = HeaderFolder::open(case_folder);
    CHECK(opened.ok());
    headers_ = std::move(opened).value();
    EngineConfig engine;
    engine.model.model = headers_->path();
    const Result<ModelConfig> model = load_model_config(headers_->path());
    const Status status = model.ok() ? Status() : model.status();
    EXPECT_EQ(status.message(), "");
    Result<ResolvedConfig> config = resolve(engine, model.value());
    EXPECT_TRUE(config.ok());
    config_ = std::move(config).value();
  }

  const std::vector<HeaderTensor>& tensors() const { return headers_->tensors(); }

  // The account of the tensors; loading them, which reads nothing when that is not in order, gives
  // the same error.
  LoadAccount account(const std::vector<HeaderTensor>& tensors) {
    headers_->write_tensors(tensors);
    Result<Checkpoint> checkpoint = Checkpoint::open(headers_->path());
    CHECK(checkpoint.ok());
    checkpoint_ = std::make_unique<Checkpoint>(std::move(checkpoint).value());
    const BuiltModel built = build();
    LoadAccount account = account_for(*built.model, *checkpoint_, built.model->weight_mapping());
    if (!account.complete()) {
      ThreadPool pool(1);
      const BuiltModel again = build();
      const Status loaded = load_weights(config_, Stream(&pool), *again.model, nullptr, nullptr);
      EXPECT_EQ(loaded.message(), account.status().message());
    }
    return account;
  }

 private:
  BuiltModel build() const {
    Result<BuiltModel> built = build_model(config_);
    CHECK(built.ok());
    return std::move(built).value();
  }

  std::unique_ptr<HeaderFolder> headers_;
  std::unique_ptr<Checkpoint> checkpoint_;
  ResolvedConfig config_;
};

bool names(const Status& status, const std::string& what) {
  return status.message().find(what) != std::string::npos;
}

class BadCheckpointTest : public ::testing::TestWithParam<std::string> {
 protected:
  BadCheckpointTest() : folder_(GetParam()), intact_(folder_.account(folder_.tensors())) {
    EXPECT_EQ(intact_.status().message(), "");
    for (const TensorAccount& tensor : intact_.tensors) {
      if (tensor.fate != TensorAccount::Fate::kLoaded) continue;
      places_[tensor.tensor->info.name] = {tensor.parameter, tensor.slice_id};
    }
    // The last of each kind: of the last layer and expert.
    for (const HeaderTensor& tensor : folder_.tensors()) {
      if (places_.contains(tensor.name)) examples_[kind_of(tensor.name)] = tensor;
    }
    EXPECT_GE(examples_.size(), 10u);
  }

  std::vector<HeaderTensor> without(const std::string& name) const {
    std::vector<HeaderTensor> tensors = folder_.tensors();
    std::erase_if(tensors, [&](const HeaderTensor& tensor) { return tensor.name == name; });
    return tensors;
  }

  Folder folder_;
  LoadAccount intact_;
  std::map<std::string, std::pair<std::string, std::string>> places_;  // parameter and slice
  std::map<std::string, HeaderTensor> examples_;                       // by kind
};

TEST_P(BadCheckpointTest, AMissingTensorIsNamed) {
  for (const auto& [kind, example] : examples_) {
    const Status status = folder_.account(without(example.name)).status();
    const auto& [parameter, slice] = places_.at(example.name);
    EXPECT_TRUE(names(status, parameter)) << example.name << ": " << status.message();
    EXPECT_TRUE(names(status, slice)) << example.name << ": " << status.message();
  }
}

TEST_P(BadCheckpointTest, ASurplusTensorIsNamed) {
  for (const auto& [kind, example] : examples_) {
    std::vector<HeaderTensor> tensors = folder_.tensors();
    HeaderTensor surplus = example;
    surplus.name += "_too_many";
    tensors.push_back(surplus);
    const Status status = folder_.account(tensors).status();
    EXPECT_TRUE(names(status, surplus.name)) << example.name << ": " << status.message();
  }
}

TEST_P(BadCheckpointTest, AMisshapenTensorIsNamed) {
  for (const auto& [kind, example] : examples_) {
    for (size_t dim = 0; dim < example.shape.size(); ++dim) {
      std::vector<HeaderTensor> tensors = without(example.name);
      HeaderTensor misshapen = example;
      ++misshapen.shape[dim];
      tensors.push_back(misshapen);
      const Status status = folder_.account(tensors).status();
      EXPECT_TRUE(names(status, example.name)) << example.name << ": " << status.message();
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.rfind('/') + 1);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         BadCheckpointTest,
                         ::testing::ValuesIn(golden_case_folders()),
                         case_name);

}  // namespace
}  // namespace atom
