// Test support: a hub of this process with one model, and pulling from it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "hub/hub.h"
#include "hub/testing/test_hub.h"
#include "tests/support/test_folders.h"

namespace atom::hub {

namespace fs = std::filesystem;

inline constexpr size_t kSegmentSize = 100'000;
inline constexpr size_t kBigSize = 1'234'567;  // 13 segments

inline std::map<std::string, TestFile> model_files() {
  return {{"config.json", {R"({"architectures": ["X"]})", false}},
          {"tokenizer.json", {random_content(300'000, 1), true}},
          {"tokenizer_config.json", {"{}", false}},
          {"additional_chat_templates/tool_use.jinja", {"{{ messages }}", false}},
          {"merges.txt", {"", false}},
          {"model.safetensors", {random_content(kBigSize, 2), true}},
          {"pytorch_model.bin", {"wrong", true}},
          {"model.gguf", {"wrong", true}},
          {"original/consolidated.00.pth", {"wrong", true}},
          {"README.md", {"read me", false}}};
}

class HubTest : public testing::Test {
 protected:
  HubTest() {
    ::setenv("no_proxy", "127.0.0.1", 1);
    start(model_files());
  }

  void start(std::map<std::string, TestFile> files) {
    hub_ = std::make_unique<TestHub>("org/some-model", std::move(files));
    options_.endpoint = hub_->url() + "/";
    options_.token = "hf_secret";
    options_.cache_folder = folder_.file("cache/hub");
    options_.segment_size = kSegmentSize;
    options_.max_connections = 4;
    options_.durable = false;
    options_.retry_delay = std::chrono::milliseconds(5);
    options_.stall_seconds = 10;
    options_.available_bytes = [](const std::string&) -> Result<uint64_t> {
      return uint64_t{1} << 40;
    };
  }

  Result<Snapshot> pull_model(const ProgressHandler& handler = {}) {
    return pull({hub_->name(), ""}, options_, handler);
  }

  std::string model_folder() const { return options_.cache_folder + "/models--org--some-model"; }
  std::string blob(const std::string& file) const {
    return model_folder() + "/blobs/" + hub_->etag(file);
  }
  std::string snapshot_file(const std::string& file) const {
    return model_folder() + "/snapshots/" + hub_->commit() + "/" + file;
  }

  void expect_content(const std::string& file) {
    const Result<std::string> text = read_file(snapshot_file(file), size_t{1} << 30);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_TRUE(*text == hub_->content(file)) << file << " differs";
  }

  // Every file under blobs/ is a complete blob.
  void expect_only_blobs() {
    for (const auto& entry : fs::directory_iterator(model_folder() + "/blobs")) {
      EXPECT_EQ(entry.path().filename().string().find('.'), std::string::npos) << entry.path();
    }
  }

  void expect_failure(const Result<Snapshot>& result, const std::string& words) {
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.status().message().find(words), std::string::npos)
        << result.status().message() << "\ndoes not say: " << words;
  }

  // Answers the first `count` requests whose target has `part` with `response`.
  void answer_first(int count, const std::string& part, TestResponse response) {
    hub_->intercept(
        [count, part, response](const TestRequest& request) mutable -> std::optional<TestResponse> {
          if (request.target.find(part) == std::string::npos || count-- <= 0) return std::nullopt;
          return response;
        });
  }

  static TestResponse status(int code, std::vector<std::string> headers = {}) {
    TestResponse response;
    response.status = code;
    response.headers = std::move(headers);
    return response;
  }

  const TemporaryFolder folder_;
  std::unique_ptr<TestHub> hub_;
  HubOptions options_;
};

}  // namespace atom::hub
