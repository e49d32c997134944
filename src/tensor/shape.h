// The extents of a tensor: up to kMaxRank dimensions, a value.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"

namespace atom {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes)
      : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const int64_t> sizes) {
    CHECK(sizes.size() <= size_t{kMaxRank});
    rank_ = static_cast<int>(sizes.size());
    for (int i = 0; i < rank_; ++i) sizes_[i] = sizes[i];
  }

  int rank() const { return rank_; }
  int64_t operator[](int dim) const { return sizes_[dim]; }
  int64_t& operator[](int dim) { return sizes_[dim]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }

  int64_t num_elements() const {
    int64_t product = 1;
    for (int64_t size : *this) product *= size;
    return product;
  }

  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i) {
      if (sizes_[i] != other.sizes_[i]) return false;
    }
    return true;
  }

  // "[2, 3]"
  std::string to_string() const;

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

}  // namespace atom
