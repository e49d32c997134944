// The files of the page at /, as they lie in this folder. page_files.cc is made of them by
// cmake/embed_files.cmake.
#pragma once

#include <span>
#include <string_view>

namespace atom::server {

struct PageFile {
  std::string_view name;  // "main.js"
  std::string_view text;
};

std::span<const PageFile> page_files();

}  // namespace atom::server
