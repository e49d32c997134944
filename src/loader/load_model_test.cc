#include "loader/load_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

#include "loader/testing/write_safetensors.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TensorToWrite;
using testing::write_file;
using testing::write_safetensors;

constexpr int64_t kVocab = 6;
constexpr int64_t kHidden = 4;
constexpr int kNumLayers = 2;

// A module with one "weight".
class Weight : public Module {
 public:
  explicit Weight(const Shape& shape, DType dtype = DType::kFloat32) : parameter_(dtype, shape) {
    register_parameter("weight", &parameter_);
  }
  Weight(DType dtype, std::vector<RowSlice> slices)
      : parameter_(dtype, std::move(slices), {kHidden}) {
    register_parameter("weight", &parameter_);
  }
  const Tensor& data() const { return parameter_.data(); }

 private:
  Parameter parameter_;
};

struct Layer : public Module {
  explicit Layer(DType dtype)
      : qkv(dtype, {{"q", 4, {}}, {"k", 2, {}}, {"v", 2, {}}}), norm({kHidden}, dtype) {
    register_module("self_attn.qkv_proj", &qkv);
    register_module("input_layernorm", &norm);
  }
  Weight qkv;
  Weight norm;
};

struct Model : public Module {
  explicit Model(DType dtype = DType::kFloat32) : embed({kVocab, kHidden}, dtype) {
    register_module("model.embed_tokens", &embed);
    for (int i = 0; i < kNumLayers; ++i) {
      layers.push_back(std::make_unique<Layer>(dtype));
      register_module(fmt::format("model.layers.{}", i), layers.back().get());
    }
  }
  Status finish_load(const Stream& stream) override {
    RETURN_IF_ERROR(Module::finish_load(stream));
    finished = true;
    return {};
  }
  Weight embed;
  std::vector<std::unique_ptr<Layer>> layers;
  bool finished = false;
};

// Distinct small integers, exact in every float type.
Tensor counting(const Shape& shape, DType dtype, int first) {
  std::vector<float> values(shape.num_elements());
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  return testing::make_tensor(shape, dtype, values);
}

std::vector<TensorToWrite> model_tensors(DType dtype = DType::kFloat32) {
  std::vector<TensorToWrite> tensors;
  tensors.push_back({"model.embed_tokens.weight", counting({kVocab, kHidden}, dtype, 100)});
  for (int i = 0; i < kNumLayers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    tensors.push_back({layer + "self_attn.v_proj.weight", counting({2, 4}, dtype, 24)});
    tensors.push_back({layer + "self_attn.q_proj.weight", counting({4, 4}, dtype, 0)});
    tensors.push_back({layer + "self_attn.k_proj.weight", counting({2, 4}, dtype, 16)});
    tensors.push_back({layer + "input_layernorm.weight", counting({4}, dtype, 50 + i)});
  }
  return tensors;
}

WeightMapping mapping() {
  ModelConfig config;
  config.num_hidden_layers = kNumLayers;
  config.tie_word_embeddings = true;
  WeightMapping mapping = base_weight_mapping(config);
  mapping.packed_modules_mapping = {
      {"q_proj", "qkv_proj", "q"}, {"k_proj", "qkv_proj", "k"}, {"v_proj", "qkv_proj", "v"}};
  return mapping;
}

std::vector<float> values_of(const Tensor& tensor) {
  Tensor values = Tensor::empty(tensor.shape(), DType::kFloat32);
  copy_convert(tensor, values);
  return {values.data<float>(), values.data<float>() + values.num_elements()};
}

std::vector<float> consecutive(int first, int count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(first));
  return values;
}

void expect_loaded(const Model& model) {
  EXPECT_TRUE(model.finished);
  EXPECT_EQ(values_of(model.embed.data()), consecutive(100, kVocab * kHidden));
  for (int i = 0; i < kNumLayers; ++i) {
    EXPECT_EQ(values_of(model.layers[i]->qkv.data()), consecutive(0, 32));
    EXPECT_EQ(values_of(model.layers[i]->norm.data()), consecutive(50 + i, 4));
  }
}

class LoadModelTest : public ::testing::Test {
 protected:
  Result<LoadReport> load(Model* model, const WeightMapping& rules, bool use_mmap = true) {
    Result<Checkpoint> opened = Checkpoint::open(folder_.path());
    if (!opened.ok()) return opened.status();
    checkpoint_ = std::make_unique<Checkpoint>(std::move(opened).value());
    return load_model(model, *checkpoint_, rules, {.stream = &stream_, .use_mmap = use_mmap});
  }
  std::string load_error(const std::vector<TensorToWrite>& tensors) {
    write_safetensors(folder_.file("model.safetensors"), tensors);
    Model model;
    const auto report = load(&model, mapping());
    EXPECT_FALSE(model.embed.data().has_data());
    return report.ok() ? "no error" : report.status().message();
  }

  TemporaryFolder folder_;
  ThreadPool pool_{2};
  Stream stream_{&pool_};
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(LoadModelTest, LoadsASingleFile) {
  write_safetensors(folder_.file("model.safetensors"), model_tensors());
  Model model;
  const auto report = load(&model, mapping());
  ASSERT_TRUE(report.ok()) << report.status().message();
  expect_loaded(model);
  EXPECT_EQ(report->account.num_loaded, 9);
  EXPECT_EQ(report->account.num_ignored, 0);
}

TEST_F(LoadModelTest, LoadsShards) {
  const std::vector<TensorToWrite> tensors = model_tensors();
  // A packed parameter's slices come from both files.
  write_safetensors(folder_.file("m-1.safetensors"), {tensors.begin(), tensors.begin() + 3});
  write_safetensors(folder_.file("m-2.safetensors"), {tensors.begin() + 3, tensors.end()});
  std::string map;
  for (size_t i = 0; i < tensors.size(); ++i) {
    map += fmt::format(
        R"({}"{}":"m-{}.safetensors")", i > 0 ? "," : "", tensors[i].name, i < 3 ? 1 : 2);
  }
  write_file(folder_.file("model.safetensors.index.json"), "{\"weight_map\":{" + map + "}}");
  Model model;
  const auto report = load(&model, mapping());
  ASSERT_TRUE(report.ok()) << report.status().message();
  expect_loaded(model);
}

TEST_F(LoadModelTest, ConvertsDtypesAndDoesNotNeedMmap) {
  for (DType stored : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    write_safetensors(folder_.file("model.safetensors"), model_tensors(stored));
    for (DType wanted : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (bool use_mmap : {true, false}) {
        Model model(wanted);
        const auto report = load(&model, mapping(), use_mmap);
        ASSERT_TRUE(report.ok()) << report.status().message();
        expect_loaded(model);
      }
    }
  }
}

TEST_F(LoadModelTest, IgnoresOnlyByARule) {
  std::vector<TensorToWrite> tensors = model_tensors();
  const Tensor extra = counting({2}, DType::kFloat32, 0);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", extra});
  tensors.push_back({"model.layers.2.eh_proj.weight", extra});
  tensors.push_back({"lm_head.weight", extra});
  write_safetensors(folder_.file("model.safetensors"), tensors);
  Model model;
  const auto report = load(&model, mapping());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->account.num_ignored, 3);
  std::vector<std::string> reasons;
  for (const TensorAccount& account : report->account.tensors) {
    if (account.fate == TensorAccount::Fate::kIgnored) reasons.push_back(account.reason);
  }
  EXPECT_THAT(reasons,
              ::testing::ElementsAre("*rotary_emb.inv_freq*", "layers from 2 on", "lm_head.*"));

  WeightMapping untied = mapping();
  untied.ignores.pop_back();
  Model again;
  EXPECT_THAT(load(&again, untied).status().message(),
              HasSubstr("1 tensors have no parameter: lm_head.weight"));
}

TEST_F(LoadModelTest, NamesMissingTensors) {
  std::vector<TensorToWrite> tensors = model_tensors();
  tensors.pop_back();
  tensors.pop_back();
  EXPECT_THAT(load_error(tensors),
              AllOf(HasSubstr("2 parameters have no tensor"),
                    HasSubstr("model.layers.1.self_attn.qkv_proj.weight (shard 'k')"),
                    HasSubstr("model.layers.1.input_layernorm.weight")));
}

TEST_F(LoadModelTest, NamesAtMostTenOfManyUnknownTensors) {
  std::vector<TensorToWrite> tensors = model_tensors();
  for (int i = 0; i < 25; ++i) {
    tensors.push_back({fmt::format("unknown.{:02}", i), counting({1}, DType::kFloat32, 0)});
  }
  const std::string message = load_error(tensors);
  EXPECT_THAT(message, AllOf(HasSubstr("25 tensors have no parameter: "), HasSubstr("unknown.09")));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("unknown.10")));
}

TEST_F(LoadModelTest, NamesTensorsOfTheWrongShapeOrDtype) {
  std::vector<TensorToWrite> tensors = model_tensors();
  tensors[0].data = counting({kVocab + 1, kHidden}, DType::kFloat32, 0);
  tensors[2].data = Tensor::zeros({4, 4}, DType::kInt8);
  const std::string message = load_error(tensors);
  EXPECT_THAT(message, HasSubstr("2 tensors do not fit their parameter"));
  EXPECT_THAT(message, HasSubstr("found shape [7, 4], expected [6, 4]"));
  EXPECT_THAT(message,
              HasSubstr("q_proj.weight (model.layers.0.self_attn.qkv_proj.weight: shard "
                        "'q': found dtype int8"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("no tensor")));
}

TEST_F(LoadModelTest, RefusesADtypeOnlyWhenItIsNeeded) {
  const std::string header =
      R"({"model.embed_tokens.weight":{"dtype":"F64","shape":[6,4],"data_offsets":[0,192]}})";
  write_file(folder_.file("model.safetensors"),
             testing::safetensors_bytes(header, std::string(192, '\0')));
  Model model;
  EXPECT_THAT(load(&model, mapping()).status().message(), HasSubstr("dtype F64 is not supported"));
}

TEST_F(LoadModelTest, RefusesTwoTensorsForOneParameter) {
  std::vector<TensorToWrite> tensors = model_tensors();
  tensors.push_back({"language_model.model.embed_tokens.weight", tensors[0].data});
  write_safetensors(folder_.file("model.safetensors"), tensors);
  WeightMapping rules = mapping();
  rules.renames = {{RenameRule::Match::kPrefix, "language_model.", ""}};
  Model model;
  EXPECT_THAT(load(&model, rules).status().message(), HasSubstr("loaded twice"));
}

TEST_F(LoadModelTest, AccountsWithoutMemory) {
  write_safetensors(folder_.file("model.safetensors"), model_tensors());
  const auto checkpoint = Checkpoint::open(folder_.path());
  Model model;
  const LoadAccount account = account_for(model, *checkpoint, mapping());
  EXPECT_TRUE(account.complete()) << account.status().message();
  EXPECT_EQ(account.loaded_bytes, checkpoint->num_bytes());
  EXPECT_FALSE(model.embed.data().has_data());
  EXPECT_EQ(account.tensors[1].parameter, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(account.tensors[1].slice_id, "v");
}

// More rows than one chunk, odd sizes, unaligned data.
TEST_F(LoadModelTest, CopiesLargeTensorsInChunksAndReportsProgress) {
  struct Large : public Module {
    Large() { register_module("w", &w); }
    Weight w{Shape{5001, 1027}, DType::kBFloat16};
  };
  Tensor source = Tensor::empty({5001, 1027}, DType::kFloat32);
  for (int64_t i = 0; i < source.num_elements(); ++i) {
    source.data<float>()[i] = static_cast<float>(i % 251);
  }
  write_safetensors(folder_.file("model.safetensors"),
                    {{"pad.attn.bias", Tensor::zeros({3}, DType::kUInt8)}, {"w.weight", source}});
  const auto checkpoint = Checkpoint::open(folder_.path());
  Large model;
  uint64_t last = 0;
  uint64_t total = 0;
  int num_calls = 0;
  LoadOptions options{.stream = &stream_};
  options.progress = [&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
    ++num_calls;
  };
  const auto report = load_model(&model, *checkpoint, mapping(), options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GT(num_calls, 1);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, static_cast<uint64_t>(source.num_bytes()));
  const BFloat16* loaded = model.w.data().data<BFloat16>();
  int64_t num_wrong = 0;
  for (int64_t i = 0; i < source.num_elements(); ++i) {
    if (to_float(loaded[i]) != static_cast<float>(i % 251)) ++num_wrong;
  }
  EXPECT_EQ(num_wrong, 0);
}

// This rank holds the second of two experts.
TEST_F(LoadModelTest, AccountsForTheExpertsOfOtherRanks) {
  struct Experts : public Module {
    Experts() { register_parameter("experts.down_proj.weight", &weight); }
    Parameter weight{DType::kFloat32,
                     {1, 2, 3},
                     std::vector<ParameterSlice>{
                         {"0", {2, 3}, {}}, {"1", {2, 3}, {{whole({2, 3}), whole({1, 2, 3})}}}}};
  };
  const Tensor first = counting({2, 3}, DType::kFloat32, 0);
  const Tensor second = counting({2, 3}, DType::kFloat32, 50);
  const std::vector<TensorToWrite> tensors = {{"experts.0.w2.weight", first},
                                              {"experts.1.w2.weight", second}};
  write_safetensors(folder_.file("model.safetensors"), tensors);
  WeightMapping rules;
  rules.packed_modules_mapping = {{"experts.{e}.w2", "experts.down_proj", "{e}"}};
  Experts model;
  const Checkpoint checkpoint = Checkpoint::open(folder_.path()).value();
  const auto report = load_model(&model, checkpoint, rules, {.stream = &stream_});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(values_of(model.weight.data()), consecutive(50, 6));
  EXPECT_EQ(report->account.num_loaded, 1);
  EXPECT_EQ(report->account.num_other_rank, 1);
  EXPECT_EQ(report->account.tensors[0].fate, TensorAccount::Fate::kOtherRank);
  EXPECT_EQ(report->account.loaded_bytes, static_cast<uint64_t>(second.num_bytes()));
}

// Gate and up of all experts in one tensor, of which the second of two ranks holds the second half
// of either: boxes that are not contiguous, larger than a chunk.
TEST_F(LoadModelTest, CopiesLargeBoxesInChunks) {
  constexpr int64_t kExperts = 2, kRows = 1502, kColumns = 1027, kHalf = kRows / 2;
  ParameterSlice all{"", {kExperts, 2 * kRows, kColumns}, {}};
  for (int64_t i = 0; i < 2; ++i) {
    const Shape size = {kExperts, kHalf, kColumns};
    all.boxes.push_back({{{0, i * kRows + kHalf, 0}, size}, {{0, i * kHalf, 0}, size}});
  }
  struct Experts : public Module {
    explicit Experts(const ParameterSlice& all)
        : weight(DType::kBFloat16, {kExperts, kRows, kColumns}, {all}) {
      register_parameter("gate_up_proj", &weight);
    }
    Parameter weight;
  };
  const auto value_at = [](int64_t row) { return static_cast<float>(row % 251); };
  const Tensor source = Tensor::empty(all.source_shape, DType::kFloat32);
  for (int64_t row = 0; row < kExperts * 2 * kRows; ++row) {
    std::fill_n(source.data<float>() + row * kColumns, kColumns, value_at(row));
  }
  write_safetensors(folder_.file("model.safetensors"), {{"gate_up_proj", source}});
  Experts model(all);
  const Checkpoint checkpoint = Checkpoint::open(folder_.path()).value();
  uint64_t done_bytes = 0;
  LoadOptions options{.stream = &stream_};
  options.progress = [&](uint64_t done, uint64_t) { done_bytes = done; };
  ASSERT_TRUE(load_model(&model, checkpoint, {}, options).ok());
  EXPECT_EQ(done_bytes, static_cast<uint64_t>(source.num_bytes()) / 2);
  const std::vector<float> loaded = values_of(model.weight.data());
  for (int64_t row = 0; row < kExperts * kRows; ++row) {
    const int64_t half = row % kRows / kHalf;
    const int64_t source_row = row / kRows * 2 * kRows + half * kRows + kHalf + row % kHalf;
    ASSERT_EQ(loaded[row * kColumns], value_at(source_row)) << row;
    ASSERT_EQ(loaded[(row + 1) * kColumns - 1], value_at(source_row)) << row;
  }
}

}  // namespace
}  // namespace atom
