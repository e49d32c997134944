// Packing of weights into panels.
#include <tmmintrin.h>

#include <algorithm>
#include <cstring>

#include "base/cpu_info.h"
#include "base/rounding.h"
#include "ops/linear/linear_variants.h"
#include "tensor/tensor_check.h"

namespace atom::ops {
namespace {

using linear_kernels::kPanelColumns;

constexpr int64_t kFourBitStep = 8;

// Elements of data in one step of a panel: vdpbf16ps takes pairs, 4 bytes hold eight 4-bit values.
int64_t step_size_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
    case DType::kFloat8E4M3:
    case DType::kInt8:
      return 2;
    case DType::kUInt8:
      return kFourBitStep / 2;
    default:
      return 1;
  }
}

// Whether a step of one column is 2 bytes; else it is 4.
bool has_short_steps(DType dtype) {
  return step_size_of(dtype) * dtype_size(dtype) == 2;
}

// Images of 64 rows of 32 bytes of two values.
Shape image_shape(int64_t out_features, int64_t row_size, DType dtype) {
  constexpr int64_t kRows = 64, kRowBytes = 32;
  CHECK(dtype == DType::kUInt8);
  CHECK(out_features % kRows == 0);
  CHECK(row_size % kRowBytes == 0);
  return {out_features / kRows, row_size / kRowBytes, kRows * kRowBytes};
}

// `row_size` elements of data to a row.
Shape data_shape(int64_t out_features, int64_t row_size, DType dtype, WeightLayout layout) {
  if (layout == WeightLayout::kRowMajor) return {out_features, row_size};
  if (layout == WeightLayout::kImages) return image_shape(out_features, row_size, dtype);
  const int64_t step_size = step_size_of(dtype);
  return {ceil_div(out_features, kPanelColumns),
          ceil_div(row_size, step_size),
          kPanelColumns * step_size};
}

DType data_dtype(QuantDType dtype) {
  switch (dtype) {
    case QuantDType::kFloat8E4M3:
      return DType::kFloat8E4M3;
    case QuantDType::kInt8:
      return DType::kInt8;
    default:
      return DType::kUInt8;
  }
}

bool has_four_bits(QuantDType dtype) {
  return data_dtype(dtype) == DType::kUInt8;
}

// Elements of data to a row.
int64_t row_elements(const LinearWeight& weight) {
  return weight.dtype() == DType::kUInt8 ? weight.in_features / 2 : weight.in_features;
}

Shape scale_shape(const LinearWeight& weight, QuantType granularity) {
  if (granularity == QuantType::kPerTensor) return {1};
  if (!weight.has_groups()) return {weight.out_features};
  const int64_t groups = ceil_div(weight.in_features, weight.group_size);
  if (weight.layout == WeightLayout::kImages) {
    CHECK((weight.group_size == 32 && weight.scale_rows == 1));
  }
  if (weight.scale_rows == 1 && weight.layout == WeightLayout::kPanels) {
    return {ceil_div(weight.out_features, kPanelColumns), groups, kPanelColumns};
  }
  return {ceil_div(weight.out_features, weight.scale_rows), groups};
}

// Four bits each, of ascending k from the lowest on, to those of even k in the lower half.
uint32_t evens_first(uint32_t codes) {
  const auto gather = [](uint32_t bits) {
    bits = (bits | bits >> 4) & 0x00ff00ffu;
    return (bits | bits >> 8) & 0xffffu;
  };
  return gather(codes & 0x0f0f0f0fu) | gather(codes >> 4 & 0x0f0f0f0fu) << 16;
}

// Units of columns [begin, begin + count).
void move_evens_first(char* panel, int64_t num_steps, int64_t begin, int64_t count) {
  uint32_t* units = reinterpret_cast<uint32_t*>(panel) + begin;
  for (int64_t step = 0; step < num_steps; ++step, units += kPanelColumns) {
    for (int64_t c = 0; c < count; ++c) units[c] = evens_first(units[c]);
  }
}

// Units of steps [begin, end) of one row to one column of a panel.
template <typename Unit>
void fill_column(const char* row, int64_t begin, int64_t end, Unit* column) {
  for (int64_t step = begin; step < end; ++step) {
    std::memcpy(column + step * kPanelColumns, row + step * sizeof(Unit), sizeof(Unit));
  }
}

constexpr int64_t kGroupColumns = 16;
constexpr int64_t kLineSize = 64;  // of caches

// Stores four columns of one 4-byte unit of k, past the caches: the panel is not read soon, and a
// line written whole need not be read first.
inline void store_columns(__m128i values, uint32_t* panel, int64_t unit, int64_t column) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(panel + unit * kPanelColumns + column), values);
}

// In float16 and FP8 the unit is two steps.
inline void store_columns(__m128i values, uint16_t* panel, int64_t unit, int64_t column) {
  const __m128i by_step =
      _mm_shuffle_epi8(values, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  uint16_t* to = panel + unit * 2 * kPanelColumns + column;
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), by_step);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + kPanelColumns), _mm_srli_si128(by_step, 8));
}

// 16 rows to 16 columns at `columns`, a cache line's length of each row at a time; returns the
// bytes of each row done.
template <typename Unit>
int64_t fill_sixteen_columns(const char* rows,
                             int64_t row_stride,
                             int64_t row_size,
                             Unit* columns) {
  constexpr int64_t kAhead = 512;
  int64_t begin = 0;
  for (; begin + kLineSize <= row_size; begin += kLineSize) {
    // Lines go through a buffer, because those of rows a power of two apart evict each other.
    alignas(64) char lines[kGroupColumns * kLineSize];
    for (int64_t r = 0; r < kGroupColumns; ++r) {
      const char* line = rows + r * row_stride + begin;
      _mm_prefetch(line + kAhead, _MM_HINT_T1);
      std::memcpy(lines + r * kLineSize, line, kLineSize);
    }
    for (int64_t unit = 0; unit < kLineSize / 4; unit += 4) {
      __m128 block[kGroupColumns];
      for (int64_t r = 0; r < kGroupColumns; ++r) {
        block[r] = _mm_load_ps(reinterpret_cast<const float*>(lines + r * kLineSize + unit * 4));
      }
      for (int64_t r = 0; r < kGroupColumns; r += 4) {
        _MM_TRANSPOSE4_PS(block[r], block[r + 1], block[r + 2], block[r + 3]);
      }
      for (int64_t u = 0; u < 4; ++u) {
        for (int64_t r = 0; r < kGroupColumns; r += 4) {
          store_columns(_mm_castps_si128(block[r + u]), columns, begin / 4 + unit + u, r);
        }
      }
    }
  }
  return begin;
}

// Writes columns of one panel in units of a step of one column: bfloat16 pairs and float32 values
// are both 4 bytes, float16 values and FP8 pairs 2. `column_begin` and `num_rows` stay inside the
// panel.
template <typename Unit>
void fill_panel(const char* rows,
                int64_t row_stride,
                int64_t num_rows,
                int64_t row_size,
                int64_t column_begin,
                char* panel) {
  Unit* columns = reinterpret_cast<Unit*>(panel) + column_begin;
  const int64_t num_steps = row_size / sizeof(Unit);
  for (int64_t r = 0; r < num_rows;) {
    int64_t group = 1;
    int64_t done = 0;
    if ((column_begin + r) % kGroupColumns == 0 && r + kGroupColumns <= num_rows) {
      group = kGroupColumns;
      done = fill_sixteen_columns(rows + r * row_stride, row_stride, row_size, columns + r);
    }
    for (int64_t end = r + group; r < end; ++r) {
      fill_column(rows + r * row_stride, done / sizeof(Unit), num_steps, columns + r);
    }
  }
  // The order of stores past the caches is otherwise unknown to other threads.
  _mm_sfence();
  const int64_t tail_begin = num_steps * sizeof(Unit);
  if (tail_begin == row_size) return;
  for (int64_t r = 0; r < num_rows; ++r) {
    Unit unit = 0;
    std::memcpy(&unit, rows + r * row_stride + tail_begin, row_size - tail_begin);
    columns[num_steps * kPanelColumns + r] = unit;
  }
}

template <typename Unit>
void clear_columns(int64_t column_begin, int64_t num_steps, char* panel) {
  Unit* units = reinterpret_cast<Unit*>(panel);
  for (int64_t step = 0; step < num_steps; ++step) {
    std::fill(
        units + step * kPanelColumns + column_begin, units + (step + 1) * kPanelColumns, Unit{0});
  }
}

template <typename Unit>
void pack_into_panels(const Stream& stream,
                      const Tensor& rows,
                      int64_t first_row,
                      const LinearWeight& weight) {
  const int64_t element_size = dtype_size(weight.dtype());
  const int64_t row_stride = rows.stride(0) * element_size;
  const int64_t panel_size = weight.data.stride(0) * element_size;
  const int64_t num_steps = weight.data.size(1);
  const int64_t last_row = first_row + rows.size(0);
  const int64_t first_panel = first_row / kPanelColumns;
  const int64_t num_panels = ceil_div(last_row, kPanelColumns) - first_panel;
  stream.pool().parallel_for(num_panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = first_panel + begin; p < first_panel + end; ++p) {
      const int64_t row_begin = std::max(first_row, p * kPanelColumns);
      const int64_t row_end = std::min(last_row, (p + 1) * kPanelColumns);
      char* panel = static_cast<char*>(weight.data.raw_data()) + p * panel_size;
      fill_panel<Unit>(
          static_cast<const char*>(rows.raw_data()) + (row_begin - first_row) * row_stride,
          row_stride,
          row_end - row_begin,
          row_elements(weight) * element_size,
          row_begin - p * kPanelColumns,
          panel);
      if (weight.dtype() == DType::kUInt8) {
        move_evens_first(panel, num_steps, row_begin - p * kPanelColumns, row_end - row_begin);
      }
      if (row_end == weight.out_features) {
        clear_columns<Unit>(row_end - p * kPanelColumns, num_steps, panel);
      }
    }
  });
}

}  // namespace

WeightLayout preferred_weight_layout(Device device) {
  if (!device.is_cpu()) return WeightLayout::kRowMajor;
  return cpu_isa() >= CpuIsa::kAvx2 ? WeightLayout::kPanels : WeightLayout::kRowMajor;
}

int64_t packed_size(int64_t out_features, int64_t in_features, DType dtype, WeightLayout layout) {
  return data_shape(out_features, in_features, dtype, layout).num_elements() * dtype_size(dtype);
}

LinearWeight linear_weight_meta(int64_t out_features,
                                int64_t in_features,
                                DType dtype,
                                WeightLayout layout) {
  const Shape shape = data_shape(out_features, in_features, dtype, layout);
  LinearWeight weight;
  weight.data = Tensor::meta(shape, dtype);
  weight.out_features = out_features;
  weight.in_features = in_features;
  weight.layout = layout;
  return weight;
}

bool LinearWeight::is_quantized() const {
  return dtype() == DType::kFloat8E4M3 || dtype() == DType::kInt8 || dtype() == DType::kUInt8;
}

QuantDType LinearWeight::quant_dtype() const {
  CHECK(is_quantized());
  if (dtype() == DType::kFloat8E4M3) return QuantDType::kFloat8E4M3;
  return dtype() == DType::kInt8 ? QuantDType::kInt8 : four_bits;
}

LinearWeight quantized_weight_meta(int64_t out_features,
                                   int64_t in_features,
                                   const QuantFormat& format,
                                   WeightLayout layout) {
  const DType dtype = data_dtype(format.dtype);
  LinearWeight weight;
  weight.out_features = out_features;
  weight.in_features = in_features;
  weight.layout = layout;
  weight.group_size = format.group_size();
  weight.scale_rows = format.scale_rows;
  if (has_four_bits(format.dtype)) {
    weight.four_bits = format.dtype;
    CHECK(weight.has_groups());
    CHECK(in_features % weight.group_size == 0);
  }
  if (format.dtype == QuantDType::kInt8) CHECK(!weight.has_groups());
  if (weight.scale_rows > 1) CHECK(weight.scale_rows % kPanelColumns == 0);
  const int64_t row_size = dtype == DType::kUInt8 ? in_features / 2 : in_features;
  weight.data = Tensor::meta(data_shape(out_features, row_size, dtype, layout), dtype);
  weight.scales = Tensor::meta(scale_shape(weight, format.granularity), format.scale_dtype());
  return weight;
}

LinearWeight make_quantized_weight(int64_t out_features,
                                   int64_t in_features,
                                   const QuantFormat& format,
                                   WeightLayout layout) {
  LinearWeight weight = quantized_weight_meta(out_features, in_features, format, layout);
  weight.data = Tensor::empty(weight.data.shape(), weight.dtype());
  weight.scales = Tensor::zeros(weight.scales.shape(), weight.scales.dtype());
  return weight;
}

LinearWeight make_linear_weight(int64_t out_features,
                                int64_t in_features,
                                DType dtype,
                                WeightLayout layout) {
  LinearWeight weight = linear_weight_meta(out_features, in_features, dtype, layout);
  weight.data = Tensor::empty(weight.data.shape(), dtype);
  return weight;
}

void pack_rows(const Stream& stream,
               const Tensor& rows,
               int64_t first_row,
               const LinearWeight& weight) {
  TensorCheck check("pack_rows");
  check.tensor("rows", rows, {"R", "K"}, weight.dtype());
  CHECK(check.size("K") == row_elements(weight));
  CHECK(weight.layout != WeightLayout::kImages);
  CHECK(first_row >= 0);
  CHECK(first_row + rows.size(0) <= weight.out_features);
  if (stream.is_dry_run() || rows.num_elements() == 0) return;
  if (weight.layout == WeightLayout::kRowMajor) {
    copy_convert(rows, weight.data.narrow(0, first_row, rows.size(0)));
  } else if (has_short_steps(weight.dtype())) {
    pack_into_panels<uint16_t>(stream, rows, first_row, weight);
  } else {
    pack_into_panels<uint32_t>(stream, rows, first_row, weight);
  }
}

LinearWeight pack_linear_weight(const Stream& stream, const Tensor& rows, WeightLayout layout) {
  CHECK(rows.rank() == 2);
  LinearWeight weight = make_linear_weight(rows.size(0), rows.size(1), rows.dtype(), layout);
  pack_rows(stream, rows, 0, weight);
  return weight;
}

int64_t panel_step_size(const LinearWeight& weight) {
  return weight.dtype() == DType::kUInt8 ? kFourBitStep : step_size_of(weight.dtype());
}

WeightRow weight_row(const LinearWeight& weight, int64_t row) {
  CHECK(weight.layout != WeightLayout::kImages);
  if (weight.layout == WeightLayout::kRowMajor) return {row * row_elements(weight), 1, 1};
  const int64_t step_size = step_size_of(weight.dtype());
  const int64_t panel = row / kPanelColumns * weight.data.stride(0);
  return {panel + row % kPanelColumns * step_size, kPanelColumns * step_size, step_size};
}

}  // namespace atom::ops
