// The cache: without a hub, made by others, damaged, and filled by several at a time.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "hub/file_lock.h"
#include "hub/hub_harness_test.h"

namespace atom::hub {
namespace {

TEST_F(HubTest, OfflineUsesTheCacheOnly) {
  options_.offline = true;
  expect_failure(pull_model(), "not in the cache");
  expect_failure(pull_model(), "HF_HUB_OFFLINE");
  options_.offline = false;
  ASSERT_TRUE(pull_model().ok());
  options_.offline = true;
  hub_->hub().forget_requests();
  hub_->content_server().forget_requests();
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->num_files, 6);
  EXPECT_EQ(hub_->num_requests(), 0);
  fs::remove(snapshot_file("model.safetensors"));
  expect_failure(pull_model(), "has no model.safetensors");
  options_.files = FileSet::kWithoutWeights;
  EXPECT_TRUE(pull_model().ok());
}

TEST_F(HubTest, TheCacheStandsInForAHubThatIsGone) {
  ASSERT_TRUE(pull_model().ok());
  answer_first(1000, "/", status(503));
  EXPECT_TRUE(pull_model().ok());
  answer_first(1000, "/", status(401));
  EXPECT_FALSE(pull_model().ok()) << "an answer is an answer";
  options_.endpoint = "http://127.0.0.1:1";
  EXPECT_TRUE(pull_model().ok());
  options_.cache_folder = folder_.file("elsewhere");
  const Result<Snapshot> unreachable = pull_model();
  expect_failure(unreachable, "no answer from http://127.0.0.1:1");
  EXPECT_EQ(unreachable.status().code(), StatusCode::kUnavailable);
}

TEST_F(HubTest, ACacheMadeByPythonIsUsed) {
  fs::create_directories(model_folder() + "/refs");
  std::ofstream(model_folder() + "/refs/main") << hub_->commit();
  for (const char* name : {"config.json",
                           "tokenizer.json",
                           "tokenizer_config.json",
                           "merges.txt",
                           "model.safetensors"}) {
    fs::create_directories(model_folder() + "/blobs");
    fs::create_directories(fs::path(snapshot_file(name)).parent_path());
    std::ofstream(blob(name)) << hub_->content(name);
    fs::create_symlink("../../blobs/" + hub_->etag(name), snapshot_file(name));
  }
  // A blob without its file: downloaded for another revision.
  std::ofstream(blob("additional_chat_templates/tool_use.jinja"))
      << hub_->content("additional_chat_templates/tool_use.jinja");
  options_.offline = true;
  EXPECT_TRUE(pull_model().ok());
  options_.offline = false;
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->num_downloaded_files, 0);
  EXPECT_EQ(hub_->num_requests(), 1);
  expect_content("additional_chat_templates/tool_use.jinja");
}

TEST_F(HubTest, DanglingLinksAndBrokenWeightsAreRepaired) {
  ASSERT_TRUE(pull_model().ok());
  fs::remove(blob("config.json"));
  fs::resize_file(blob("model.safetensors"), 1000);
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->num_downloaded_files, 2);
  expect_content("config.json");
  expect_content("model.safetensors");
}

TEST_F(HubTest, ConcurrentPullsDownloadEachFileOnce) {
  std::vector<std::thread> threads;
  std::vector<Result<Snapshot>> results(3, Status(StatusCode::kInternal, "not run"));
  for (Result<Snapshot>& result : results) {
    threads.emplace_back([&] { result = pull_model(); });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t num_bytes = 0;
  int num_files = 0;
  for (const Result<Snapshot>& result : results) {
    ASSERT_TRUE(result.ok()) << result.status().message();
    num_bytes += result->num_downloaded_bytes;
    num_files += result->num_downloaded_files;
  }
  EXPECT_EQ(num_files, 6);
  EXPECT_EQ(num_bytes, results[0]->num_bytes);
  expect_content("model.safetensors");
  expect_only_blobs();
}

TEST_F(HubTest, ConcurrentPullsOfProcessesAreSafe) {
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(pull_model().ok() ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  expect_content("model.safetensors");
  expect_content("tokenizer.json");
  expect_only_blobs();
}

TEST_F(HubTest, WaitsForWhoHoldsTheLock) {
  const std::string locks = options_.cache_folder + "/.locks/models--org--some-model";
  fs::create_directories(locks);
  Result<std::optional<FileLock>> lock =
      FileLock::try_take(locks + "/" + hub_->etag("model.safetensors") + ".lock");
  ASSERT_TRUE(lock.ok() && lock->has_value());
  bool waited = false;
  const Result<Snapshot> snapshot = pull_model([&](const Progress& progress) {
    if (progress.waiting_for != "model.safetensors" || waited) return true;
    waited = true;
    std::ofstream(blob("model.safetensors")) << hub_->content("model.safetensors");
    lock->reset();
    return true;
  });
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_TRUE(waited);
  EXPECT_EQ(hub_->num_downloads("model.safetensors"), 0);
  expect_content("model.safetensors");
}

TEST_F(HubTest, TooLittleSpaceIsSaidBeforeAnything) {
  options_.available_bytes = [](const std::string&) -> Result<uint64_t> { return 1'000'000; };
  const Result<Snapshot> result = pull_model();
  expect_failure(result, "1.5 MiB (1534607 bytes) are to be downloaded");
  expect_failure(result, "976.6 KiB (1000000 bytes) are free");
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(hub_->num_requests(), 1);
}

}  // namespace
}  // namespace atom::hub
