#include "hub/hub.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "hub/cache_folder.h"
#include "hub/download_loop.h"
#include "hub/hub_api.h"
#include "hub/needed_files.h"

namespace atom::hub {
namespace {

constexpr int kMaxConnections = 64;
// Enough attempts to be sure when the cache has the model anyway.
constexpr int kMaxAttemptsWithCache = 2;

bool is_weights(const std::string& file) {
  return file.ends_with(".safetensors");
}

// The files of a snapshot that atom reads; an error that names what is missing to use it.
Result<std::vector<std::string>> files_of_snapshot(const std::string& folder, FileSet wanted) {
  std::vector<std::string> files;
  for (const std::string& file : small_files()) {
    if (file_exists(folder + "/" + file)) files.push_back(file);
  }
  std::vector<std::string> needed = {kConfigFile};
  if (wanted == FileSet::kAll) {
    const std::string index = folder + "/" + kIndexFile;
    if (file_exists(folder + "/" + kWeightsFile) || !file_exists(index)) {
      files.push_back(kWeightsFile);
    } else {
      ASSIGN_OR_RETURN(const std::string text, read_file(index, kMaxIndexBytes));
      ASSIGN_OR_RETURN(const std::vector<std::string> names, files_of_index(text, index));
      files.push_back(kIndexFile);
      files.insert(files.end(), names.begin(), names.end());
    }
    needed.insert(needed.end(), files.begin(), files.end());
  }
  for (const std::string& file : needed) {
    if (!file_exists(folder + "/" + file)) return not_found("{} has no {}", folder, file);
  }
  return files;
}

// Counts the files of a snapshot.
Snapshot describe_snapshot(const ModelName& model,
                           const CacheFolder& cache,
                           const std::string& commit,
                           const std::vector<std::string>& files) {
  Snapshot snapshot;
  snapshot.name = model.name;
  snapshot.commit = commit;
  snapshot.folder = cache.snapshot_folder(commit);
  snapshot.num_files = static_cast<int>(files.size());
  for (const std::string& file : files) {
    snapshot.num_bytes += file_size(cache.file_path(commit, file)).value_or(0);
  }
  return snapshot;
}

// The snapshot that the cache has of a revision; an error when there is none to be used.
Result<Snapshot> cached_snapshot(const ModelName& model, const CacheFolder& cache, FileSet wanted) {
  const std::optional<std::string> commit = cache.find_commit(model.revision);
  std::error_code error;
  if (!commit || !std::filesystem::is_directory(cache.snapshot_folder(*commit), error)) {
    return not_found("{}: not in the cache {}", model.to_string(), cache.path());
  }
  const Result<std::vector<std::string>> files =
      files_of_snapshot(cache.snapshot_folder(*commit), wanted);
  if (files.ok()) return describe_snapshot(model, cache, *commit, *files);
  return files.status().with_context(model.to_string() + ": the cache has a part of it only");
}

// Finds out what a model needs and has it downloaded.
class Pull {
 public:
  Pull(const ModelName& model,
       const HubOptions& options,
       const CacheFolder& cache,
       HttpClient* client,
       const ProgressHandler& handler)
      : model_(model),
        options_(options),
        cache_(cache),
        client_(client),
        handler_(handler),
        api_(client, options, [this] { return !handler_ || handler_(Progress()); }) {}

  Result<RepoListing> list(int max_attempts) { return api_.list(model_, max_attempts); }

  Result<Snapshot> run(RepoListing listing) {
    listing_ = std::move(listing);
    DownloadLoop loop(client_, cache_, options_, model_, listing_.commit, &handler_);
    std::vector<std::string> files;
    for (const std::string& file : small_files()) {
      if (listing_.files.contains(file)) files.push_back(file);
    }
    if (options_.files == FileSet::kAll) RETURN_IF_ERROR(add_weights(&files));
    RETURN_IF_ERROR(download(files, &loop));
    // A cache that is complete may be read-only.
    if (Status status = cache_.write_ref(model_.revision, listing_.commit); !status.ok()) {
      log::warning("{}", status.message());
    }

    Snapshot snapshot = describe_snapshot(model_, cache_, listing_.commit, files);
    snapshot.num_downloaded_files = loop.counts().num_files + index_counts_.num_files;
    snapshot.num_downloaded_bytes = loop.counts().num_bytes + index_counts_.num_bytes;
    return snapshot;
  }

 private:
  // As the loader reads them: one file, or those that the index names.
  Status add_weights(std::vector<std::string>* files) {
    if (listing_.files.contains(kWeightsFile)) {
      files->push_back(kWeightsFile);
      return {};
    }
    if (!listing_.files.contains(kIndexFile)) return no_weights();
    files->push_back(kIndexFile);
    DownloadLoop loop(client_, cache_, options_, model_, listing_.commit, nullptr);
    RETURN_IF_ERROR(download({kIndexFile}, &loop));
    index_counts_ = loop.counts();
    const std::string path = cache_.file_path(listing_.commit, kIndexFile);
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxIndexBytes));
    const std::string where = fmt::format("{}: {}", model_.to_string(), kIndexFile);
    ASSIGN_OR_RETURN(const std::vector<std::string> names, files_of_index(text, where));
    for (const std::string& name : names) {
      if (!listing_.files.contains(name)) {
        return not_found("{}: names {}, which the model does not have at commit {}",
                         where,
                         name,
                         listing_.commit);
      }
      files->push_back(name);
    }
    return {};
  }

  Status no_weights() const {
    std::string others;
    for (const char* ending : {".safetensors", ".bin", ".gguf", ".pth", ".pt", ".onnx"}) {
      for (const auto& [name, file] : listing_.files) {
        if (others.empty() && name.ends_with(ending)) others = name;
      }
    }
    return not_found("{}: the model has neither {} nor {}{}",
                     model_.to_string(),
                     kWeightsFile,
                     kIndexFile,
                     others.empty() ? ""
                                    : fmt::format("; it has {}, which atom does not read",
                                                  others.substr(0, 200)));
  }

  bool is_there(const std::string& file, const RepoFile& wanted) const {
    const std::optional<uint64_t> size = file_size(cache_.file_path(listing_.commit, file));
    // Small files may have been edited by hand; weights of another size are broken.
    return size && (!is_weights(file) || wanted.etag.empty() || *size == wanted.size);
  }

  Status download(const std::vector<std::string>& files, DownloadLoop* loop) {
    std::vector<WantedBlob> blobs;
    std::map<std::string, size_t> index_of_etag;
    for (const std::string& file : files) {
      RepoFile wanted = listing_.files.at(file);
      if (is_there(file, wanted)) continue;
      if (wanted.etag.empty()) {
        ASSIGN_OR_RETURN(wanted, api_.look_up(model_, listing_.commit, file));
      }
      const auto [it, inserted] = index_of_etag.emplace(wanted.etag, blobs.size());
      if (inserted) blobs.push_back({wanted.etag, wanted.size, {}});
      blobs[it->second].files.push_back(file);
    }
    if (blobs.empty()) return {};
    RETURN_IF_ERROR(cache_.create());
    return loop->run(blobs);
  }

  const ModelName& model_;
  const HubOptions& options_;
  const CacheFolder& cache_;
  HttpClient* const client_;
  const ProgressHandler& handler_;
  HubApi api_;
  RepoListing listing_;
  DownloadCounts index_counts_;
};

std::string without_trailing_slashes(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

Result<Snapshot> pull_checked(const ModelName& model,
                              const HubOptions& options,
                              const ProgressHandler& handler) {
  const CacheFolder cache(options.cache_folder, model.name);
  Result<Snapshot> cached = cached_snapshot(model, cache, options.files);
  if (options.offline) {
    if (cached.ok()) return cached;
    return not_found("{}, and HF_HUB_OFFLINE forbids to download it", cached.status().message());
  }
  HttpClientOptions client_options;
  client_options.endpoint = options.endpoint;
  client_options.token = options.token;
  client_options.stall_seconds = options.stall_seconds;
  client_options.max_connections = options.max_connections;
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpClient> client,
                   HttpClient::create(std::move(client_options)));
  Pull pull(model, options, cache, client.get(), handler);
  const int max_attempts = cached.ok() ? kMaxAttemptsWithCache : options.max_attempts;
  Result<RepoListing> listing = pull.list(max_attempts);
  if (!listing.ok() && listing.status().code() == StatusCode::kUnavailable && cached.ok()) {
    log::warning(
        "{}; taken as the cache has it, at commit {}", listing.status().message(), cached->commit);
    return cached;
  }
  if (!listing.ok()) return listing.status();
  return pull.run(*std::move(listing));
}

}  // namespace

Result<Snapshot> pull(const ModelName& model,
                      const HubOptions& options,
                      const ProgressHandler& handler) {
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const ModelName revised, with_revision(model, options.revision));
  if (options.cache_folder.empty()) {
    return invalid_argument(
        "no folder for downloaded models: neither HF_HUB_CACHE, HF_HOME nor HOME is set");
  }
  HubOptions checked = options;
  checked.endpoint = without_trailing_slashes(options.endpoint);
  checked.max_connections = std::clamp(options.max_connections, 1, kMaxConnections);
  checked.segment_size = std::max<uint64_t>(options.segment_size, 1);
  ASSIGN_OR_RETURN(Snapshot snapshot, pull_checked(revised, checked, handler));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  snapshot.seconds = elapsed.count();
  return snapshot;
}

bool is_hub_name(const std::string& name_or_folder) {
  return !file_exists(name_or_folder) && parse_model_name(name_or_folder).has_value();
}

Result<std::string> resolve_checkpoint(const std::string& name_or_folder,
                                       const HubOptions& options,
                                       const ProgressHandler& handler) {
  if (!is_hub_name(name_or_folder)) return name_or_folder;
  const Result<Snapshot> snapshot = pull(*parse_model_name(name_or_folder), options, handler);
  if (snapshot.ok()) return snapshot->folder;
  return snapshot.status().with_context("no such folder, and as a model of the hub");
}

}  // namespace atom::hub
