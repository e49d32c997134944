#include "cli/doctor/collectives.h"

#include <fmt/format.h>

#include <thread>

#include "base/human.h"
#include "cli/table.h"
#include "comm/device/device_group.h"
#include "comm/local/local_group.h"
#include "tensor/device_runtime.h"

namespace atom::cli::doctor {
namespace {

constexpr std::chrono::milliseconds kBudget{30};
constexpr std::chrono::seconds kPatience{20};

// Multiples of 4 bytes for each rank.
std::vector<int64_t> sizes_for(int32_t num_ranks) {
  std::vector<int64_t> sizes;
  const int64_t unit = int64_t{sizeof(float)} * num_ranks;
  for (int64_t size = 256; size <= int64_t{16} << 20; size *= 4) {
    sizes.push_back((size + unit - 1) / unit * unit);
  }
  return sizes;
}

std::string microseconds(double seconds) {
  return fmt::format("{:.1f}", seconds * 1e6);
}

using Group = std::vector<std::unique_ptr<Communicator>>;

// Calls measure(rank) of each rank on a thread of its own; what the first found.
template <typename Measure>
Result<std::vector<CollectiveTime>> measure_together(const Group& ranks, const Measure& of_rank) {
  std::vector<Result<std::vector<CollectiveTime>>> times(ranks.size(),
                                                         internal_error("a rank did not measure"));
  const auto measure = [&](size_t rank) { times[rank] = of_rank(*ranks[rank]); };
  std::vector<std::thread> threads;
  for (size_t rank = 1; rank < ranks.size(); ++rank) threads.emplace_back(measure, rank);
  measure(0);
  for (std::thread& thread : threads) thread.join();
  return times[0];
}

}  // namespace

Result<std::vector<CollectiveTime>> measure_local_collectives(int32_t num_ranks) {
  const std::vector<int64_t> sizes = sizes_for(num_ranks);
  return measure_together(make_local_group(num_ranks, kPatience), [&](Communicator& rank) {
    ThreadPool pool(1);
    return measure_collectives(rank, Stream(&pool), sizes, kBudget);
  });
}

Result<std::vector<CollectiveTime>> measure_card_collectives(int32_t num_ranks) {
  const std::vector<int64_t> sizes = sizes_for(num_ranks);
  std::vector<Device> cards;
  std::vector<DeviceRuntime*> runtimes;
  for (int32_t index = 0; index < num_ranks; ++index) {
    cards.push_back({DeviceType::kCuda, index});
    ASSIGN_OR_RETURN(DeviceRuntime * runtime, device_runtime(cards.back()));
    runtimes.push_back(runtime);
  }
  ASSIGN_OR_RETURN(const Group group, make_device_group(cards, kPatience));
  return measure_together(group, [&](Communicator& rank) {
    ThreadPool pool(1);
    const std::unique_ptr<DeviceQueue> queue = runtimes[rank.rank()]->create_queue();
    return measure_collectives(rank, Stream(&pool, queue.get()), sizes, kBudget);
  });
}

std::string collectives_table(const std::vector<CollectiveTime>& times,
                              const std::string& what,
                              int32_t num_ranks) {
  std::vector<Table::Column> columns = {{"size", Table::Align::kRight}};
  for (const Collective collective : kCollectives) {
    columns.push_back({fmt::format("{} (us)", collective_name(collective)), Table::Align::kRight});
    columns.push_back({"GB/s", Table::Align::kRight});
  }
  Table table(columns);
  std::vector<std::string> row;
  for (const CollectiveTime& time : times) {
    if (row.empty()) row.push_back(human_bytes(time.bytes));
    row.push_back(microseconds(time.seconds));
    row.push_back(fmt::format("{:.2f}", time.bus_bandwidth(num_ranks) / 1e9));
    if (row.size() < columns.size()) continue;
    table.add_row(std::move(row));
    row.clear();
  }
  return fmt::format(
             "\nCollectives of {}. Sizes are those of a rank's whole tensor; GB/s is what a rank "
             "sends at least, over the time.\n",
             what) +
         table.to_string();
}

}  // namespace atom::cli::doctor
