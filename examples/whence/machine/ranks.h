// A training by several processes, its ranks: their options, starting them here, and what rank 0 alone does.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "examples/whence/cli/command_line.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/run/training.h"
#include "tensor/ranks/communicator.h"

namespace whence {

struct RankOptions {
  int processes = 1;
  std::string communicator = "auto", rendezvous;
  double limit = 600;     // seconds
  bool announced = true;  // in a line on standard output: how many there are, over what
};

// Under the title "Ranks".
void declare(CommandLine& line, RankOptions& options);

// What a command does as one of its ranks: all of it where there is but one. Before `work`, --threads is shared by the
// ranks of this machine unless it was typed, and ranks other than 0 stop printing to standard output. The exit code of
// `work`; where it throws, the other ranks are told why, and one alone says it on standard error.
// With --processes N, and no launcher that made this process a rank: forks N children, which return from here as ranks;
// this process waits for them. A signal to stop is handed on to all. When one fails the others end too; the exit code is
// 130 when they were interrupted, else that of a rank whose own fault it was, before the 1 of those that missed it.
// REQUIRES: no GPU was asked for anything before.
[[nodiscard]] int run_as_ranks(const CommandLine& line, const RankOptions& options, MachineOptions& machine,
    const std::function<int(Communicator* ranks)>& work);

// --accumulate is of all ranks: left out, each rank has one part of a step; true then. InputError when it is typed and
// cannot be shared.
bool fit_accumulate(const CommandLine& line, TrainingOptions& training);

void record_accumulate(RunRecord& record, const TrainingOptions& training);  // then: as if it had been typed

// Of a step.
[[nodiscard]] inline std::int64_t parts_of_a_rank(const TrainingOptions& training) {
  return training.ranks ? training.accumulate / training.ranks->size() : training.accumulate;
}

// Rank 0, or the only one: it alone reads and writes files, shows progress, and tests.
[[nodiscard]] inline bool speaks(const Communicator* ranks) { return !ranks || ranks->rank() == 0; }

// InputError on every rank, which says what differs, unless all were given the same `facts` ("option", "value").
void require_same_on_all(Communicator& ranks, const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace whence
