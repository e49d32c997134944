// What servers send of a file: cut, stalled, ranges that are wrong, bytes that are.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>

#include "hub/hub_harness_test.h"

namespace atom::hub {
namespace {

TEST_F(HubTest, ResumesWhereACutLeftOff) {
  std::atomic<int> num_cuts{0};
  hub_->intercept([&](const TestRequest& request) -> std::optional<TestResponse> {
    if (request.target.find("/content/model.safetensors") == std::string::npos) return {};
    if (num_cuts >= 10) return {};
    const std::string range = request.header("range");
    const size_t first = std::strtoull(range.c_str() + 6, nullptr, 10);
    const size_t last = std::strtoull(range.c_str() + range.find('-') + 1, nullptr, 10);
    ++num_cuts;
    TestResponse response;
    response.status = 206;
    response.headers = {fmt::format("Content-Range: bytes {}-{}/{}", first, last, kBigSize)};
    response.body = hub_->content("model.safetensors").substr(first, last - first + 1);
    response.cut_after = response.body.size() * 2 / 3;
    return response;
  });
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  expect_content("model.safetensors");
  size_t small_files = 0;
  for (const char* name : {"config.json",
                           "tokenizer.json",
                           "tokenizer_config.json",
                           "additional_chat_templates/tool_use.jinja"}) {
    small_files += hub_->content(name).size();
  }
  EXPECT_EQ(snapshot->num_downloaded_bytes, kBigSize + small_files) << "nothing came twice";
}

TEST_F(HubTest, ResumesAfterAnInterruption) {
  const Result<Snapshot> stopped =
      pull_model([](const Progress& progress) { return progress.bytes_done < 700'000; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.status().code(), StatusCode::kAborted);
  EXPECT_FALSE(file_exists(blob("model.safetensors")));
  EXPECT_FALSE(file_exists(snapshot_file("model.safetensors")));
  EXPECT_TRUE(file_exists(blob("model.safetensors") + ".atom-incomplete"));
  EXPECT_FALSE(file_exists(blob("model.safetensors") + ".incomplete"));
  const Result<Snapshot> resumed = pull_model();
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  expect_content("model.safetensors");
  expect_only_blobs();
  EXPECT_LT(resumed->num_downloaded_bytes, kBigSize - 200'000);
}

TEST_F(HubTest, ResumesAfterItWasKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)pull_model([](const Progress& progress) {
      if (progress.bytes_done >= 1'000'000) ::raise(SIGKILL);
      return true;
    });
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Result<Snapshot> resumed = pull_model();
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  expect_content("model.safetensors");
  expect_only_blobs();
  // At most the segments that were under way come again.
  EXPECT_LT(resumed->num_downloaded_bytes, 535'000 + 4 * kSegmentSize);
}

TEST_F(HubTest, TakesOverWhatPythonLeftIncomplete) {
  fs::create_directories(model_folder() + "/blobs");
  std::ofstream(blob("model.safetensors") + ".incomplete")
      << hub_->content("model.safetensors").substr(0, 1'000'000);
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  expect_content("model.safetensors");
  expect_only_blobs();
  EXPECT_LT(snapshot->num_downloaded_bytes, 234'567u + 301'000u);
}

TEST_F(HubTest, AWrongPartIsFoundAndDownloadedAgain) {
  fs::create_directories(model_folder() + "/blobs");
  std::ofstream(blob("model.safetensors") + ".incomplete") << std::string(kBigSize, 'x');
  ASSERT_TRUE(pull_model().ok());
  expect_content("model.safetensors");
}

TEST_F(HubTest, AServerWithoutRangesSendsTheWhole) {
  hub_->refuse_ranges();
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  expect_content("model.safetensors");
  expect_only_blobs();
}

TEST_F(HubTest, AStallIsGivenUpAndResumed) {
  TestResponse stall;
  stall.status = 200;
  stall.body = hub_->content("config.json");
  stall.cut_after = 5;
  stall.stall_ms = 60'000;
  answer_first(1, "/config.json", stall);
  options_.stall_seconds = 1;
  const auto start = std::chrono::steady_clock::now();
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  expect_content("config.json");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(HubTest, MoreBytesThanListedAreRefused) {
  TestResponse response;
  response.body = hub_->content("config.json") + "more";
  answer_first(100, "/config.json", response);
  expect_failure(pull_model(),
                 "config.json: the server sends 28 bytes, and lists the file with 24");
  response.headers = {"Connection: close"};  // no length
  answer_first(100, "/config.json", response);
  expect_failure(pull_model(), "config.json: the server sends more than the 24 bytes");
  EXPECT_FALSE(file_exists(snapshot_file("config.json")));
}

TEST_F(HubTest, FewerBytesThanListedAreRefused) {
  TestResponse response;
  response.body = "{}";
  answer_first(100, "/config.json", response);
  expect_failure(pull_model(), "config.json: the server sends 2 bytes, and lists the file with 24");
  response.headers = {"Connection: close"};
  answer_first(100, "/config.json", response);
  expect_failure(pull_model(), "bytes early");
  EXPECT_FALSE(file_exists(snapshot_file("config.json")));
}

TEST_F(HubTest, WrongRangesAreRefused) {
  for (const char* range : {"bytes 0-99999/99",
                            "bytes 5-99/1234567",
                            "bytes 0-1234566/1234567",
                            "bytes 9-1/1234567",
                            "octets 0-9/10",
                            ""}) {
    TestResponse response;
    response.status = 206;
    response.body = std::string(100'000, 'x');
    response.headers = {fmt::format("Content-Range: {}", range)};
    answer_first(100, "/content/model.safetensors", response);
    expect_failure(pull_model(), "model.safetensors: the server sends the bytes");
  }
}

TEST_F(HubTest, WrongBytesNeverBecomeVisible) {
  TestResponse response;
  response.body = std::string(hub_->content("config.json").size(), 'x');
  answer_first(100, "/config.json", response);
  const Result<Snapshot> result = pull_model();
  expect_failure(result, "config.json: the checksum of what was downloaded is");
  expect_failure(result, git_sha1_of(response.body));
  expect_failure(result, hub_->etag("config.json"));
  EXPECT_EQ(hub_->num_downloads("config.json"), 2);
  EXPECT_FALSE(file_exists(snapshot_file("config.json")));
  EXPECT_FALSE(file_exists(blob("config.json")));
  EXPECT_FALSE(file_exists(blob("config.json") + ".atom-incomplete"));
  EXPECT_FALSE(file_exists(model_folder() + "/refs/main"));
  answer_first(1, "/config.json", response);
  ASSERT_TRUE(pull_model().ok());
  expect_content("config.json");
}

}  // namespace
}  // namespace atom::hub
