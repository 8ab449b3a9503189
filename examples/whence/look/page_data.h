// The data of the page as JSON, which examples/whence/look/viewer/ reads.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "examples/whence/cli/json.h"
#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/overview.h"

namespace whence::look {

// The numbers of all that a page shows: one block of bytes, in which equal arrays stand once. The JSON says of each
// array {"at": BYTE, "bytes": COUNT}: little-endian f32 or f64, a byte for each cause, or u32 of which each is the
// difference to the one before.
class PageNumbers {
 public:
  template <class T> Json add(const std::vector<T>& array) {
    return place_of({reinterpret_cast<const std::uint8_t*>(array.data()), array.size() * sizeof(T)});
  }
  Json add(const Tensor& x);  // null where it is undefined
  [[nodiscard]] const std::vector<std::uint8_t>& block() const { return block_; }
  [[nodiscard]] std::string text() const;  // the block deflated, as base64

 private:
  Json place_of(std::span<const std::uint8_t> array);

  std::vector<std::uint8_t> block_;
  std::multimap<std::size_t, std::pair<std::size_t, std::size_t>> places_;  // by the hash of what stands there
};

[[nodiscard]] Json palettes_json();  // 256 colours each, "440154..."
// Without the story where the inspection is of an `edited` pass: what further edits do is known of the pass without any.
[[nodiscard]] Json json_of(const Inspection& inspection, PageNumbers& numbers,
    const std::vector<EditOutcome>& edits = {}, bool links = true, bool edited = false);
// What is there of every pass, whatever its weights: without links, paths, graph and edits.
[[nodiscard]] Json json_of_pass(const Inspection& inspection, PageNumbers& numbers);
// Of a long text: pools, windows and strips.
[[nodiscard]] Json json_of(const Overview& overview, const Rows& rows, PageNumbers& numbers);

}  // namespace whence::look
