#include "nn/module.h"

#include <gtest/gtest.h>

#include <memory>

namespace atom {
namespace {

class Layer : public Module {
 public:
  explicit Layer(std::vector<std::string>* finished = nullptr) : finished_(finished) {
    register_parameter("weight", &weight_);
    register_parameter("bias", &bias_);
  }
  Status finish_load(const Stream& stream) override {
    RETURN_IF_ERROR(Module::finish_load(stream));
    if (finished_ == nullptr) return internal_error("cannot repack");
    finished_->push_back("layer");
    return {};
  }

 private:
  std::vector<std::string>* finished_;
  Parameter weight_{DType::kFloat32, {2, 3}};
  Parameter bias_{DType::kBFloat16, {2}};
};

class Wrapper : public Module {
 public:
  explicit Wrapper(Layer* layer) { register_module("", layer); }
};

class Model : public Module {
 public:
  explicit Model(std::vector<std::string>* finished) : layer_(finished), inner_(finished) {
    register_parameter("scale", &scale_);
    register_module("layers.0", &layer_);
    register_module("norm", &wrapper_);
  }

 private:
  Parameter scale_{DType::kFloat32, {1}};
  Layer layer_;
  Layer inner_;
  Wrapper wrapper_{&inner_};
};

TEST(Module, NamesParametersByTheirPath) {
  Model model(nullptr);
  std::vector<std::string> names;
  for (const NamedParameter& named : model.named_parameters()) names.push_back(named.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "scale", "layers.0.weight", "layers.0.bias", "norm.weight", "norm.bias"}));
  EXPECT_EQ(model.parameter_bytes(), 4 + 2 * (24 + 4));
}

TEST(Module, AllocatesEveryParameter) {
  Model model(nullptr);
  ThreadPool pool(1);
  model.allocate_parameters(Stream(&pool));
  for (const NamedParameter& named : model.named_parameters()) {
    EXPECT_TRUE(named.parameter->data().has_data()) << named.name;
  }
}

TEST(Module, FinishesEveryLayerAndReportsTheFirstError) {
  std::vector<std::string> finished;
  EXPECT_TRUE(Model(&finished).finish_load(Stream::dry_run()).ok());
  EXPECT_EQ(finished.size(), 2u);
  EXPECT_EQ(Model(nullptr).finish_load(Stream::dry_run()).message(), "cannot repack");
}

TEST(ModuleDeathTest, RefusesAmbiguousNames) {
  class Twice : public Module {
   public:
    Twice() {
      register_parameter("weight", &weight_);
      register_parameter("weight", &weight_);
    }
    Parameter weight_{DType::kFloat32, {1}};
  };
  EXPECT_DEATH(Twice(), "CHECK|other != name");
}

}  // namespace
}  // namespace atom
