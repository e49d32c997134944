#include "hub/hub.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "hub/hub_harness_test.h"

namespace atom::hub {
namespace {

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
