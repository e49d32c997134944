#include "base/check.h"
#include "flashinfer_kernels.h"

namespace atom::bench {
namespace {

std::vector<int32_t> download(const int32_t* data, size_t count) {
  std::vector<int32_t> host(count);
  check_gpu(ATOM_GPU(Memcpy)(host.data(), data, count * 4, ATOM_GPU(MemcpyDeviceToHost)),
            "download tables");
  return host;
}

}  // namespace

FlashInferBatch::FlashInferBatch(const ops::AttentionArgs& params) : params_(params) {
  CHECK(params.head_dim == kFlashInferHeadDim);
  CHECK(params.num_heads == kFlashInferGroupSize * params.num_kv_heads);
  CHECK(params.element == Element::kBFloat16);
  CHECK(params.sliding_window == 0);
  CHECK((params.sinks == nullptr));
  // Its decode kernels write rows one behind the other.
  CHECK(params.out_head_stride == params.head_dim);
  CHECK(params.out_token_stride == int64_t{params.num_heads} * params.head_dim);
  query_start_ = download(params.query_start, params.num_sequences + 1);
  seq_lens_ = download(params.seq_lens, params.num_sequences);
  CHECK(query_start_.front() == 0);
  CHECK(query_start_.back() == params.num_tokens);
  pages_ = make_flashinfer_pages(
      download(params.block_tables, params.num_sequences * params.block_table_stride),
      params.block_table_stride,
      seq_lens_,
      params.block_size,
      params.num_blocks);
  device_query_start_ = upload(query_start_);
  device_first_page_ = upload(pages_.first_page);
  device_pages_ = upload(pages_.pages);
  device_last_page_len_ = upload(pages_.last_page_len);
}

FlashInferWorkspace::FlashInferWorkspace() : floats(size_t{128} << 20), ints(size_t{8} << 20) {
  check_gpu(ATOM_GPU(MallocHost)(&staging, ints.size()), "allocate page-locked memory");
}

FlashInferWorkspace::~FlashInferWorkspace() {
  check_gpu(ATOM_GPU(FreeHost)(staging), "free page-locked memory");
}

}  // namespace atom::bench
