// Which worker runs a cell: several `lab` on one machine or many share a folder, and each cell is one's at a time.
//
// A cell's folder holds claim-1, claim-2, ...: files that the system lets exactly one process make (O_EXCL, over NFS
// too). The highest number is the claim; to take a cell over from a worker that died is to make the next one. So
// nothing is ever renamed or removed under a living owner, and one that was frozen and wakes up sees that a higher
// number is there. The owner counts in its file every few seconds. Others judge by whether that count moves while
// their own steady clock runs: no clock of two machines is compared. On one machine a process that has ended is seen
// at once.
//
// What it cannot do: a worker and its run that are frozen together, by a machine or a mount, for longer than others
// wait, may write for two seconds after they wake, until the next beat. On one machine, and over a file system whose
// flock reaches all, the lock of the checkpoints keeps such a run's place from being taken at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace whence {

class Claim {
 public:
  // What the newest claim of a folder says.
  struct Standing {
    int number = 0;      // 0: there is none
    std::string owner;   // "host:1234"
    std::string state;   // "held", "free", or "failed: WHY"
    std::string text;    // all of it; another one at each beat
    bool ended = false;  // the process is of this machine and is no more
  };
  [[nodiscard]] static Standing standing(const std::filesystem::path& folder);

  // Makes the claim after `seen`, in a folder that exists. Nothing where another was quicker. SystemError when the
  // folder cannot be written.
  [[nodiscard]] static std::optional<Claim> take(const std::filesystem::path& folder, const Standing& seen);

  // Every few seconds. False: the cell is another's by now, and nothing may be written there any more. SystemError when
  // the folder is gone or cannot be written.
  [[nodiscard]] bool beat();
  // Gives it back: free for anybody, or with the reason for which its run failed.
  void give_back(const std::string& failure = {});
  // Of a run that is done, whose mark says so: no claim is needed.
  static void remove_all(const std::filesystem::path& folder) noexcept;

 private:
  Claim(std::filesystem::path folder, int number) : folder_(std::move(folder)), number_(number) {}
  void write(const std::string& state);

  std::filesystem::path folder_;
  int number_;
  std::uint64_t beats_ = 0;
};

// How long claims of others have not moved, by this process's own clock.
class ClaimWatch {
 public:
  explicit ClaimWatch(double seconds_until_dead) : limit_(seconds_until_dead) {}
  // May a worker that sees this take the cell over?
  [[nodiscard]] bool abandoned(const std::filesystem::path& folder, const Claim::Standing& seen);

 private:
  struct Seen {
    std::string text;
    double since;
  };
  double limit_;
  std::map<std::filesystem::path, Seen> seen_;
};

}  // namespace whence
