// bench ranks: measures exchanges of bytes, and sums of gradient-sized arrays, between processes that train one model,
// as shares of what the same number of processes can copy at once.
#include <algorithm>

#include "examples/whence/bench/bench.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/machine/ranks.h"
#include "tensor/cpu/threads.h"
#include "tensor/device/device_runtime.h"
#include "tensor/ranks/collectives.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

struct Options {
  std::string millions = "1,10,124";
  RankOptions ranks;
  Settings settings;
};

constexpr index_t numbers = index_t(16) << 20;                          // in the largest exchange
constexpr index_t largest_exchange = numbers * index_t(sizeof(float));  // bytes

class RanksBench {
 public:
  RanksBench(const Options& options, Device device, Communicator& ranks)
      : ranks_(ranks),
        millions_(numbers_of(options.millions, "--millions")),
        bench_("ranks", options.settings, device, 2 + millions_.size(), &ranks) {}

  void run() {
    copy();
    exchanges();
    for (const std::int64_t millions : millions_) sum(millions);
  }

 private:
  double slowest(double seconds) {  // all ranks have arrived when it returns
    const std::vector<double> all = gather_over_ranks(ranks_, std::vector{seconds});
    return *std::max_element(all.begin(), all.end());
  }

  // Returns milliseconds of the slowest rank, from when all have arrived; `prepare` before and `check` after do not count.
  Median timed(
      const std::function<void()>& work, const std::function<void()>& prepare = [] {},
      const std::function<void()>& check = [] {}) {
    std::vector<double> times;
    for (int repetition = -1; repetition < bench_.settings().repetitions; ++repetition) {
      stop_if_asked();
      prepare();
      synchronise(bench_.device());
      (void)slowest(0);
      const Communicator::Traffic before = ranks_.traffic();
      const double start = steady_seconds();
      work();
      synchronise(bench_.device());
      const double taken = steady_seconds() - start;
      sent_ = {ranks_.traffic().exchanges - before.exchanges, ranks_.traffic().bytes - before.bytes};
      const double all = slowest(taken);
      check();
      if (repetition >= 0) times.push_back(1e3 * all);  // the first warms up
    }
    return median(times);
  }

  void copy() {
    bench_.begin("copying");
    const Median copy = timed([&] { raw::copy_into(mine_, theirs_); });
    copy_gb_per_s_ = static_cast<double>(largest_exchange) / copy.value / 1e6;
    bench_.keep(described("copy").add("ms", copy.value).add("gb_per_s", copy_gb_per_s_));
  }

  void exchanges() {
    bench_.begin("exchanges");
    for (const index_t bytes : {index_t(8), index_t(1) << 10, index_t(1) << 16, index_t(1) << 20, largest_exchange}) {
      const index_t part = bytes / static_cast<index_t>(sizeof(float));
      const Tensor own = raw::slice(mine_, 0, 0, part), other = raw::slice(theirs_, 0, 0, part);
      const index_t times = std::clamp<index_t>((index_t(8) << 20) / bytes, 1, 1000);
      const Median all = timed([&] {
        for (index_t k = 0; k < times; ++k) ranks_.exchange(ranks_.rank() ^ 1, own, other);
      });
      const auto each = static_cast<double>(times);
      keep(
          "exchange with the neighbour", {1, static_cast<std::uint64_t>(bytes)}, {all.value / each, all.spread / each});
    }
  }

  void sum(std::int64_t millions) {
    const std::string what = to_text("sum of ", millions, " M numbers");
    bench_.begin(what);
    const index_t count = millions * 1000000;
    const double expected = ranks_.size() * (ranks_.size() + 1) / 2.0;
    Tensor total;
    const Median time = timed([&] { sum_over_ranks(ranks_, total); },
        [&] {
          total = Tensor();
          total = Tensor::full({count}, ranks_.rank() + 1.0, DType::f32, bench_.device());
        },
        [&] {
          for (const index_t at : {index_t(0), count / 2, count - 1})
            if (const double found = raw::slice(total, 0, at, at + 1).item(); found != expected)
              throw Error("bench ranks: the sum of 1, 2, ... ", ranks_.size(), " is ", found, " at ", at, " over ",
                  ranks_.name());
        });
    keep(what, sent_, time);
  }

  Row described(const std::string& what) const {
    return Row().add("what", what).add("ranks", ranks_.size()).add("communicator", ranks_.name());
  }

  // `sent`: the traffic of one rank.
  void keep(const std::string& what, const Communicator::Traffic& sent, const Median& time) {
    const double gb_per_s = static_cast<double>(sent.bytes) / time.value / 1e6, share = gb_per_s / copy_gb_per_s_;
    bench_.keep(described(what)
                    .add("", what, "what")
                    .add("exchanges", sent.exchanges, "exchanges")
                    .add("bytes", sent.bytes, "bytes sent by a rank")
                    .add("ms", time.value, "ms", time.value < 0.1 ? fixed(time.value, 4) : text_of(time))
                    .add("spread_ms", time.spread)
                    .add("gb_per_s", gb_per_s, "GB/s sent", fixed(gb_per_s, 3))
                    .add("of_copying", share, "of copying", percent_of(share)),
        to_text(ranks_.size(), " ranks over ", ranks_.name(), "; copying, all at once: ", fixed(copy_gb_per_s_, 2),
            " GB/s by each"));
  }

  Communicator& ranks_;
  std::vector<std::int64_t> millions_;
  Bench bench_;
  Tensor mine_ = Tensor::full({numbers}, 1.0, DType::f32, bench_.device());
  Tensor theirs_ = Tensor::zeros({numbers}, DType::f32, bench_.device());
  Communicator::Traffic sent_;  // in the last repetition
  double copy_gb_per_s_ = 0;
};

int run(CommandLine& line) {
  Options options;
  options.ranks.processes = 2;
  options.ranks.announced = false;  // the output may be JSON
  line.heading("Cases").text("millions", &options.millions,
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
