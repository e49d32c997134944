// Where one model lies in the cache that huggingface_hub shares:
//   models--ORG--NAME/blobs/ETAG                        content, complete and verified
//   models--ORG--NAME/blobs/ETAG.atom-incomplete        being downloaded (partial_file.h)
//   models--ORG--NAME/snapshots/COMMIT/FILE             relative symbolic link to a blob
//   models--ORG--NAME/refs/REVISION                     the commit of a branch or tag
//   .locks/models--ORG--NAME/ETAG.lock                  held while a blob is written
// Whoever calls has checked names, commits and etags: they become parts of paths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace atom::hub {

class CacheFolder {
 public:
  CacheFolder(const std::string& cache_folder, const std::string& model_name);

  const std::string& path() const { return path_; }
  std::string blob_path(const std::string& etag) const;
  std::string partial_path(const std::string& etag) const;
  // What versions of huggingface_hub before 1.0 leave behind, a prefix of the blob.
  std::string python_partial_path(const std::string& etag) const;
  std::string lock_path(const std::string& etag) const;
  std::string snapshot_folder(const std::string& commit) const;
  std::string file_path(const std::string& commit, const std::string& file) const;

  // Makes the folders that writing needs.
  Status create() const;

  // The commit that a revision was at when it was last downloaded; a commit stands for itself.
  std::optional<std::string> find_commit(const std::string& revision) const;
  Status write_ref(const std::string& revision, const std::string& commit) const;

  // Lets the snapshot's file lead to a blob, in one step. What is there already is replaced.
  Status link(const std::string& commit, const std::string& file, const std::string& etag) const;

 private:
  const std::string path_;
  const std::string locks_path_;
};

// The size of what a path leads to; nothing when that is no regular file.
std::optional<uint64_t> file_size(const std::string& path);

// Makes a folder and those above it.
Status make_folders(const std::string& path);

}  // namespace atom::hub
