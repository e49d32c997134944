#include "hub/hub.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/file.h"
#include "hub/file_lock.h"
#include "hub/testing/test_hub.h"
#include "tests/support/test_folders.h"

namespace atom::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSegmentSize = 100'000;
constexpr size_t kBigSize = 1'234'567;  // 13 segments

std::map<std::string, TestFile> model_files() {
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

std::string index_of(const std::vector<std::string>& files) {
  std::string map;
  for (size_t i = 0; i < files.size(); ++i) {
    map += fmt::format(R"({}"tensor{}": "{}")", i == 0 ? "" : ", ", i, files[i]);
  }
  return R"({"metadata": {}, "weight_map": {)" + map + "}}";
}

std::map<std::string, TestFile> sharded_files(const std::vector<std::string>& in_index) {
  std::map<std::string, TestFile> files = model_files();
  files.erase("model.safetensors");
  files["model.safetensors.index.json"] = {index_of(in_index), false};
  files["model-00001-of-00002.safetensors"] = {random_content(150'000, 3), true};
  files["model-00002-of-00002.safetensors"] = {random_content(50'000, 4), true};
  files["consolidated.safetensors"] = {"wrong", true};
  return files;
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

TEST_F(HubTest, PullsWhatTheEngineReadsIntoTheSharedLayout) {
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->commit, hub_->commit());
  EXPECT_EQ(snapshot->folder, model_folder() + "/snapshots/" + hub_->commit());
  EXPECT_EQ(snapshot->num_files, 6);
  EXPECT_EQ(snapshot->num_downloaded_files, 6);
  std::set<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(snapshot->folder)) {
    if (entry.is_directory()) continue;
    const std::string name = entry.path().lexically_relative(snapshot->folder).string();
    found.insert(name);
    ASSERT_TRUE(entry.is_symlink()) << name;
    const std::string up = name.find('/') == std::string::npos ? "../../" : "../../../";
    EXPECT_EQ(fs::read_symlink(entry.path()).string(), up + "blobs/" + hub_->etag(name));
    expect_content(name);
  }
  EXPECT_EQ(found,
            (std::set<std::string>{"additional_chat_templates/tool_use.jinja",
                                   "config.json",
                                   "merges.txt",
                                   "model.safetensors",
                                   "tokenizer.json",
                                   "tokenizer_config.json"}));
  EXPECT_EQ(*read_file(model_folder() + "/refs/main", 100), hub_->commit());
  EXPECT_TRUE(file_exists(options_.cache_folder + "/.locks/models--org--some-model/" +
                          hub_->etag("config.json") + ".lock"));
  expect_only_blobs();
  EXPECT_GE(hub_->num_downloads("model.safetensors"), 13);  // in segments
}

TEST_F(HubTest, SecondPullDownloadsNothing) {
  ASSERT_TRUE(pull_model().ok());
  hub_->hub().forget_requests();
  hub_->content_server().forget_requests();
  const Result<Snapshot> again = pull_model();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->num_files, 6);
  EXPECT_EQ(again->num_downloaded_files, 0);
  EXPECT_EQ(again->num_downloaded_bytes, 0u);
  EXPECT_EQ(hub_->num_requests(), 1);
}

TEST_F(HubTest, ACompleteCacheNeedNotBeWritten) {
  ASSERT_TRUE(pull_model().ok());
  const fs::path locks = options_.cache_folder + "/.locks";
  fs::remove_all(locks);
  std::ofstream(locks) << "no folder can be made here";
  fs::remove_all(model_folder() + "/refs");
  std::ofstream(model_folder() + "/refs") << "nor here";
  const Result<Snapshot> snapshot = pull_model();
  EXPECT_TRUE(snapshot.ok()) << snapshot.status().message();
}

TEST_F(HubTest, TokenGoesToTheHubOnly) {
  ASSERT_TRUE(pull_model().ok());
  for (const TestRequest& request : hub_->hub().requests()) {
    EXPECT_EQ(request.header("authorization"), "Bearer hf_secret");
  }
  ASSERT_FALSE(hub_->content_server().requests().empty());
  for (const TestRequest& request : hub_->content_server().requests()) {
    EXPECT_EQ(request.header("authorization"), "");
  }
}

TEST_F(HubTest, RevisionsAreNamedByTheirRefs) {
  options_.revision = "refs/pr/1";
  ASSERT_TRUE(pull_model().ok());
  EXPECT_EQ(*read_file(model_folder() + "/refs/refs/pr/1", 100), hub_->commit());
  options_.revision = hub_->commit();
  ASSERT_TRUE(pull_model().ok());
  EXPECT_FALSE(file_exists(model_folder() + "/refs/" + hub_->commit()));
  options_.revision = "no-such-branch";
  expect_failure(pull_model(), "no revision 'no-such-branch'");
  options_.revision = "../../x";
  expect_failure(pull_model(), "'../../x' is no revision");
}

TEST_F(HubTest, WithoutWeightsLeavesThemOut) {
  options_.files = FileSet::kWithoutWeights;
  ASSERT_TRUE(pull_model().ok());
  EXPECT_TRUE(file_exists(snapshot_file("config.json")));
  EXPECT_EQ(hub_->num_downloads("model.safetensors"), 0);
  options_.files = FileSet::kAll;
  const Result<Snapshot> all = pull_model();
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->num_downloaded_files, 1);
}

TEST_F(HubTest, AnIndexNamesTheWeights) {
  start(sharded_files({"model-00001-of-00002.safetensors",
                       "model-00002-of-00002.safetensors",
                       "model-00001-of-00002.safetensors"}));
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  EXPECT_EQ(snapshot->num_files, 8);
  EXPECT_EQ(snapshot->num_downloaded_files, 8);
  expect_content("model.safetensors.index.json");
  expect_content("model-00001-of-00002.safetensors");
  expect_content("model-00002-of-00002.safetensors");
  EXPECT_FALSE(file_exists(snapshot_file("consolidated.safetensors")));
}

TEST_F(HubTest, AnIndexMayNotNameWhatIsNotThere) {
  start(sharded_files({"model-00001-of-00002.safetensors", "model-00003-of-00002.safetensors"}));
  expect_failure(pull_model(), "names model-00003-of-00002.safetensors, which the model does not");
}

TEST_F(HubTest, HostileNamesInAnIndexAreRefused) {
  for (const char* name : {"../../evil.safetensors",
                           "/etc/evil.safetensors",
                           "a/b.safetensors",
                           "a\\\\b.safetensors",
                           ".hidden.safetensors",
                           "a\\u0000b.safetensors",
                           "model.bin"}) {
    start(sharded_files({name}));
    expect_failure(pull_model(), "must be the name of a .safetensors file in the same folder");
    fs::remove_all(options_.cache_folder);
  }
}

TEST_F(HubTest, HostileNamesInTheListingAreNotUsed) {
  std::map<std::string, TestFile> files = model_files();
  files["../../../../evil.json"] = {"{}", false};
  files["/tmp/tokenizer.json"] = {"{}", false};
  start(files);
  ASSERT_TRUE(pull_model().ok());
  EXPECT_FALSE(file_exists(folder_.file("evil.json")));
}

TEST_F(HubTest, ListingsThatLieAreRefused) {
  const auto refuse = [&](const std::string& body, const std::string& words) {
    TestResponse response;
    response.body = body;
    answer_first(1000, "/api/", response);
    expect_failure(pull_model(), words);
  };
  const std::string commit = R"("sha": ")" + hub_->commit() + R"(")";
  refuse("no JSON", "org/some-model@main");
  refuse("[]", "no object");
  refuse(R"({"siblings": []})", "no string 'sha'");
  refuse(R"({"sha": "../../../../../../../../../../../../x", "siblings": []})", "40 hexadecimal");
  refuse("{" + commit + "}", "no array 'siblings'");
  refuse("{" + commit + R"(, "siblings": [{"rfilename": "config.json", "size": 3,
         "blobId": "../../config"}]})",
         "'../../config' as the sum");
  refuse("{" + commit + R"(, "siblings": [{"rfilename": "config.json", "size": -3,
         "blobId": "x"}]})",
         "no size in");
  refuse("{" + commit + R"(, "siblings": [{"rfilename": "x.safetensors", "lfs": {
         "sha256": "x", "size": 18446744073709551615}}]})",
         "no size in");
  refuse("{" + commit + R"(, "siblings": [{"rfilename": "pytorch_model.bin"}]})",
         "it has pytorch_model.bin, which atom does not read");
  refuse(std::string(17u << 20, ' '), "over");
}

TEST_F(HubTest, MirrorsThatListNamesOnlyAreAskedForEachFile) {
  hub_->list_names_only();
  ASSERT_TRUE(pull_model().ok());
  expect_content("model.safetensors");
  EXPECT_TRUE(file_exists(blob("tokenizer.json")));
  expect_only_blobs();
}

TEST_F(HubTest, EtagsThatAreNoFileNamesAreRefused) {
  hub_->list_names_only();
  for (const char* etag : {"ETag: \"../../x\"", "ETag: \"\"", "ETag: W/\"a.b\"", "No: etag"}) {
    answer_first(1, "/config.json", status(200, {etag, "Content-Length: 3"}));
    expect_failure(pull_model(), "as ETag; expected letters");
  }
  answer_first(1, "/config.json", status(200, {"ETag: \"abc\"", "Content-Length: 9999999999999"}));
  expect_failure(pull_model(), "as its size");
  answer_first(1, "/config.json", status(200, {"ETag: \"abc\"", "X-Repo-Commit: other"}));
  expect_failure(pull_model(), "answers for commit other");
}

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

TEST_F(HubTest, TransientErrorsAreTriedAgain) {
  for (const int code : {500, 502, 503, 504, 408, 429}) {
    answer_first(3, "/", status(code));
    const Result<Snapshot> snapshot = pull_model();
    EXPECT_TRUE(snapshot.ok()) << code << ": " << snapshot.status().message();
    fs::remove_all(options_.cache_folder);
  }
  TestResponse nothing;
  nothing.cut_after = 0;
  nothing.body = "x";
  answer_first(3, "/", nothing);
  EXPECT_TRUE(pull_model().ok());
}

TEST_F(HubTest, TransientErrorsAreTriedAFewTimesOnly) {
  answer_first(1000, "/", status(503));
  expect_failure(pull_model(), "answers 503");
  EXPECT_EQ(hub_->num_requests(), 5);
}

TEST_F(HubTest, WaitsAsLongAsTheServerAsks) {
  answer_first(1, "/api/", status(429, {"Retry-After: 1"}));
  auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(pull_model().ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  fs::remove_all(options_.cache_folder);
  answer_first(1, "/content/model", status(429, {"RateLimit: \"resolvers\";r=0;t=1"}));
  start = std::chrono::steady_clock::now();
  ASSERT_TRUE(pull_model().ok());
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  answer_first(1, "/api/", status(429, {"Retry-After: 3600"}));
  options_.revision = hub_->commit();
  fs::remove_all(options_.cache_folder);
  expect_failure(pull_model(), "try again in 3600 s");
}

TEST_F(HubTest, DeniedAccessSaysWhatToDo) {
  answer_first(1, "/api/", status(401));
  expect_failure(pull_model(), "token file) is not valid");
  options_.token.clear();
  answer_first(1, "/api/", status(401));
  expect_failure(pull_model(), "set HF_TOKEN");
  answer_first(1, "/api/", status(404));
  expect_failure(pull_model(), "no such model or revision: check the name");
  answer_first(100,
               "/model.safetensors",
               status(403, {"X-Error-Code: GatedRepo", "X-Error-Message: Ask\x1b[31m nicely"}));
  const Result<Snapshot> gated = pull_model();
  expect_failure(gated, "agree to its conditions at " + hub_->url() + "/org/some-model");
  expect_failure(gated, "the hub says: Ask?[31m nicely");
  const Result<Snapshot> unknown = pull({"org/other", ""}, options_, {});
  expect_failure(unknown, "org/other@main");
  expect_failure(unknown, "check the name");
}

TEST_F(HubTest, AnExpiredRedirectIsAskedForAgain) {
  std::atomic<int> num_refused{0};
  hub_->intercept([&, num_allowed = 2](
                      const TestRequest& request) mutable -> std::optional<TestResponse> {
    // The signature of the first answers is good for a few requests.
    if (request.target.find("/content/model.safetensors?sig=1") != std::string::npos) {
      if (num_allowed-- > 0) return {};
      ++num_refused;
      return status(403);
    }
    if (num_refused > 0 && request.target.ends_with("/model.safetensors")) {
      return status(
          302, {"Location: " + hub_->content_server().url() + "/content/model.safetensors?sig=2"});
    }
    return {};
  });
  options_.max_connections = 1;
  const Result<Snapshot> snapshot = pull_model();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().message();
  expect_content("model.safetensors");
  EXPECT_GT(num_refused, 0);
}

TEST_F(HubTest, RedirectsAreLimited) {
  answer_first(1000, "/api/", status(307, {"Location: /api/models/org/some-model/revision/main"}));
  expect_failure(pull_model(), "redirects more than 8 times");
  hub_->hub().forget_requests();
  for (const char* target : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/"}) {
    answer_first(1000, "/api/", status(302, {fmt::format("Location: {}", target)}));
    expect_failure(pull_model(), "redirects to what is no http or https URL");
  }
  // A model that was renamed.
  answer_first(1,
               "/api/models/org/some-model",
               status(307, {"Location: /api/models/org/some-model/revision/main?x=1"}));
  EXPECT_TRUE(pull_model().ok());
}

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

TEST_F(HubTest, ProgressEndsAtTheTotal) {
  Progress last;
  ASSERT_TRUE(pull_model([&](const Progress& progress) {
                last = progress;
                return true;
              }).ok());
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_GT(last.bytes_total, kBigSize);
}

TEST_F(HubTest, FoldersWinOverNames) {
  EXPECT_EQ(*resolve_checkpoint(folder_.path(), options_, {}), folder_.path());
  EXPECT_EQ(*resolve_checkpoint("/no/such/folder", options_, {}), "/no/such/folder");
  EXPECT_EQ(hub_->num_requests(), 0);
  EXPECT_EQ(*resolve_checkpoint("org/some-model", options_, {}),
            model_folder() + "/snapshots/" + hub_->commit());
  const Result<std::string> unknown = resolve_checkpoint("modles/tldr", options_, {});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("no such folder"), std::string::npos);
}

TEST_F(HubTest, WrongEndpointsAreRefused) {
  for (const char* endpoint : {"huggingface.co:x:y", "file:///tmp", "", "https://"}) {
    options_.endpoint = endpoint;
    expect_failure(pull_model(), "HF_ENDPOINT is");
  }
}

}  // namespace
}  // namespace atom::hub
