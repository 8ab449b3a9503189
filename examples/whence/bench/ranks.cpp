// bench ranks: what processes that train one model say to each other: exchanges of bytes, and sums of as many numbers
// as models have gradients, as shares of what as many processes can copy at once.
#include <algorithm>
#include <cstring>
#include <iostream>
#include <optional>

#include "examples/whence/bench/measure.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/machine/ranks.h"
#include "examples/whence/report/table.h"
#include "tensor/device/device_runtime.h"
#include "tensor/parallel.h"
#include "tensor/ranks/collectives.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

struct Options {
  std::string millions = "1,10,124";
  RankOptions ranks;
  Settings settings;
};

constexpr index_t largest_exchange = index_t(64) << 20;  // bytes

struct Row {
  std::string what;
  Communicator::Traffic sent;  // by one rank
  Median time;                 // ms
  double gb_per_s = 0, share = 0;
};

class RanksBench {
 public:
  RanksBench(const Options& options, Device device, Communicator& ranks)
      : options_(options), device_(device), ranks_(ranks), millions_(numbers_of(options.millions, "--millions")) {
    install_interrupt_handler();
    if (ranks.rank() == 0)
      bench_.emplace("ranks", options.settings, false, static_cast<std::int64_t>(2 + millions_.size()));
  }

  void run() {
    const auto measure = [&] {
      exchanges();
      for (const std::int64_t millions : millions_) sum(millions);
    };
    if (bench_)
      bench_->run(measure, [&] { show(); });
    else
      measure();
  }

 private:
  void begin(const std::string& what) {
    if (bench_)
      bench_->begin(what);
    else
      stop_if_asked();
  }

  double slowest(double seconds) {  // all are there when it returns
    const std::vector<double> all = gather_over_ranks(ranks_, std::vector{seconds});
    return *std::max_element(all.begin(), all.end());
  }

  // Milliseconds of the slowest rank, from when all are there; `prepare` before and `check` after each do not count.
  Median timed(
      const std::function<void()>& work, const std::function<void()>& prepare = [] {},
      const std::function<void()>& check = [] {}) {
    std::vector<double> times;
    for (int repetition = -1; repetition < options_.settings.repetitions; ++repetition) {
      stop_if_asked();
      prepare();
      synchronise(device_);
      (void)slowest(0);
      const Communicator::Traffic before = ranks_.traffic();
      const double start = steady_seconds();
      work();
      synchronise(device_);
      const double taken = steady_seconds() - start;
      sent_ = {ranks_.traffic().exchanges - before.exchanges, ranks_.traffic().bytes - before.bytes};
      const double all = slowest(taken);
      check();
      if (repetition >= 0) times.push_back(1e3 * all);  // the first warms up
    }
    return median(times);
  }

  void exchanges() {
    const index_t numbers = largest_exchange / static_cast<index_t>(sizeof(float));
    const Tensor mine = Tensor::full({numbers}, 1.0, DType::f32, device_);
    const Tensor theirs = Tensor::zeros({numbers}, DType::f32, device_);
    begin("copying");
    const Median copy = timed([&] {
      if (device_.is_cpu())
        std::memcpy(theirs.bytes(), mine.bytes(), static_cast<std::size_t>(largest_exchange));
      else
        raw::copy_into(mine, theirs);
    });
    copy_gb_per_s_ = static_cast<double>(largest_exchange) / copy.value / 1e6;
    if (bench_)
      bench_->record(
          {{"what", std::string("copy")}, {"ranks", std::int64_t{ranks_.size()}}, {"communicator", ranks_.name()},
              {"device", to_string(device_)}, {"ms", copy.value}, {"gb_per_s", copy_gb_per_s_}});
    begin("exchanges");
    for (const index_t bytes : {index_t(8), index_t(1) << 10, index_t(1) << 16, index_t(1) << 20, largest_exchange}) {
      const index_t part = bytes / static_cast<index_t>(sizeof(float));
      const Tensor own = raw::slice(mine, 0, 0, part), other = raw::slice(theirs, 0, 0, part);
      const index_t times = std::clamp<index_t>((index_t(8) << 20) / bytes, 1, 1000);
      Median time = timed([&] {
        for (index_t k = 0; k < times; ++k) ranks_.exchange(ranks_.rank() ^ 1, own, other);
      });
      const auto each = static_cast<double>(times);
      time = {time.value / each, time.spread / each};
      keep({"exchange with the neighbour", {1, static_cast<std::uint64_t>(bytes)}, time});
    }
  }

  void sum(std::int64_t millions) {
    begin(to_text("sum of ", millions, " M numbers"));
    const index_t numbers = millions * 1000000;
    const double expected = ranks_.size() * (ranks_.size() + 1) / 2.0;
    Tensor total;
    const Median time = timed([&] { sum_over_ranks(ranks_, total); },
        [&] {
          total = Tensor();
          total = Tensor::full({numbers}, ranks_.rank() + 1.0, DType::f32, device_);
        },
        [&] {
          for (const index_t at : {index_t(0), numbers / 2, numbers - 1})
            if (const double found = raw::slice(total, 0, at, at + 1).item(); found != expected)
              throw Error("bench ranks: the sum of 1, 2, ... ", ranks_.size(), " is ", found, " at ", at, " over ",
                  ranks_.name());
        });
    keep({to_text("sum of ", millions, " M numbers"), sent_, time});
  }

  void keep(Row row) {
    row.gb_per_s = static_cast<double>(row.sent.bytes) / row.time.value / 1e6;
    row.share = row.gb_per_s / copy_gb_per_s_;
    rows_.push_back(row);
    if (bench_)
      bench_->record({{"what", row.what}, {"ranks", std::int64_t{ranks_.size()}}, {"communicator", ranks_.name()},
          {"device", to_string(device_)}, {"exchanges", static_cast<std::int64_t>(row.sent.exchanges)},
          {"bytes", static_cast<std::int64_t>(row.sent.bytes)}, {"ms", row.time.value}, {"spread_ms", row.time.spread},
          {"gb_per_s", row.gb_per_s}, {"of_copying", row.share}});
  }

  void show() const {
    std::cout << ranks_.size() << " ranks over " << ranks_.name()
              << "; copying, all at once: " << fixed(copy_gb_per_s_, 2) << " GB/s by each\n";
    Table table({"what", "exchanges", "bytes sent by a rank", "ms", "GB/s sent", "of copying"});
    for (const Row& row : rows_)
      table.row({row.what, to_text(row.sent.exchanges), to_text(row.sent.bytes),
          row.time.value < 0.1 ? fixed(row.time.value, 4) : text_of(row.time), fixed(row.gb_per_s, 3),
          fixed(100 * row.share, 0) + " %"});
    std::cout << table.text();
  }

  const Options& options_;
  Device device_;
  Communicator& ranks_;
  std::vector<std::int64_t> millions_;
  std::optional<Bench> bench_;  // rank 0's, which alone prints
  Communicator::Traffic sent_;  // in the last repetition
  double copy_gb_per_s_ = 0;
  std::vector<Row> rows_;
};

int run(CommandLine& line) {
  Options options;
  options.ranks.processes = 2;
  options.ranks.announced = false;  // what is printed may be JSON
  line.heading("What is measured")
      .text("millions", &options.millions,
          {"numbers in a sum over ranks, commas between them; each rank holds 1.5 times as many in f32", "millions"});
  declare(line, options.ranks);
  declare(line, options.settings);
  line.example("whence bench ranks --processes 4", "four processes of this machine, over the memory that they share")
      .example("mpirun -n 4 whence bench ranks", "the same over MPI, in a build with -DWHENCE_MPI=ON");
  if (line.shows_page()) return 0;
  (void)numbers_of(options.millions, "--millions");
  MachineOptions machine;
  machine.threads = options.settings.threads, machine.device = options.settings.device;
  return run_as_ranks(line, options.ranks, machine, [&](Communicator* ranks) {
    if (!ranks) line.refuse("processes", "2 or more", "one process has nobody to talk to");
    set_threads(machine.threads);
    RanksBench(options, choose_device(machine.device).device, *ranks).run();
    return 0;
  });
}

const RegisterCommand registered{
    {"bench ranks", Purpose::machine, "exchanges and sums over processes, as shares of copying", run}};

}  // namespace
}  // namespace whence::bench
